#pragma once

// How many prompt tokens a step may take while other requests decode, so that it delays their next
// tokens by no more than a limit. What steps take is learned from steps that ran: those without
// prompt tokens by the number of requests in them, and what a prompt token adds to one. Both move
// with contexts, adapters and the machine's neighbours, so old values fade.
// Thread: engine loop. Pure: times come in. Outputs do not depend on what it decides.

#include <array>
#include <cstdint>
#include <limits>

#include "common/packed_bytes.h"

namespace tandem {

// The larger of the two; none if both are 0.
struct StepTimeLimit {
  double seconds = 0;
  double decode_steps = 0;  // times what the step takes without prompt tokens
};

class PrefillPace {
 public:
  static constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();

  explicit PrefillPace(const StepTimeLimit& limit) : limit_(limit) {}

  bool is_on() const { return limit_.seconds > 0 || limit_.decode_steps > 0; }
  // Prompt tokens of the next step, in which num_decodes requests decode: at least kLeastTokens, so
  // that prompts go on whatever the limit is. 0: the step is to show what it takes without any.
  int32_t TokensOfNextStep(int32_t num_decodes);
  // A step has taken this long.
  void Observe(int32_t num_decodes, int32_t num_prefill_tokens, double seconds);

  // For a checkpoint; see Scheduler.
  void Save(ByteWriter* out) const;
  void Load(ByteReader* in);

  static constexpr int32_t kLeastTokens = 16;

 private:
  // Steps of 1, 2, 3 to 4, 5 to 8 … requests.
  struct Decodes {
    double seconds = 0;     // without prompt tokens; 0: not known
    int32_t num_since = 0;  // steps with prompt tokens since it was seen
    int32_t num_held = 0;   // steps that were to show it since
  };
  Decodes& Of(int32_t num_decodes);

  StepTimeLimit limit_;
  std::array<Decodes, 17> decodes_ = {};
  double seconds_per_token_ = 0;  // of a prompt; 0: not known
};

}  // namespace tandem
