#pragma once

// How much of prompts a step may take while other requests decode, so that it delays their next
// tokens by no more than a limit: prompt tokens, and slices of their images. What steps take is
// learned from steps that ran: those without prompts by the number of requests in them, and what a
// prompt token and a slice add to one. All move with contexts, adapters and the machine's
// neighbours, so old values fade; a single step that took far too long changes little.
// Where prompts are in most steps anyway, a longer step makes nobody's pauses uneven and spends
// less of the time on decodes: the limit may grow with the median of what steps take.
// Prompts and images have limits of their own, because no step computes all of a large image: also
// where nobody decodes, requests may come. Where both are limited, they share the time.
// Thread: engine loop. Pure: times come in. Outputs do not depend on what it decides.

#include <array>
#include <cstdint>
#include <limits>

#include "common/packed_bytes.h"

namespace tandem {

// The larger of the two; none if both are 0.
struct StepTimeLimit {
  double seconds = 0;
  double decode_steps = 0;  // times what the step takes without prompts
  // As many at most, where the median step takes longer than one without prompts. 0: no growth.
  double most_decode_steps = 0;

  bool is_on() const { return seconds > 0 || decode_steps > 0; }
};

class PrefillPace {
 public:
  static constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();

  explicit PrefillPace(const StepTimeLimit& limit, const StepTimeLimit& image_limit = {})
      : limit_(limit), image_limit_(image_limit) {}

  bool is_on() const { return limit_.is_on() || image_limit_.is_on(); }
  // Prompt tokens of the next step, in which num_decodes requests decode: at least kLeastTokens, so
  // that prompts go on whatever the limit is. 0: the step is to show what it takes without any.
  // is_image_under_way: it will have slices as well.
  int32_t TokensOfNextStep(int32_t num_decodes, bool is_image_under_way = false);
  // Slices of the same step, at least one.
  int32_t SlicesOfNextStep(int32_t num_decodes);
  // A step has taken this long.
  void Observe(int32_t num_decodes, int32_t num_prefill_tokens, double seconds,
               int32_t num_slices = 0);

  // For a checkpoint; see Scheduler.
  void Save(ByteWriter* out) const;
  void Load(ByteReader* in);

  static constexpr int32_t kLeastTokens = 16;

 private:
  // Steps of 1, 2, 3 to 4, 5 to 8 … requests.
  struct Decodes {
    double seconds = 0;          // without prompt tokens; 0: not known
    double doubted_seconds = 0;  // seen last, far from that; 0: none
    int32_t num_since = 0;       // steps with prompt tokens since it was seen
    int32_t num_held = 0;        // steps that were to show it since
  };
  Decodes& Of(int32_t num_decodes);
  // What a step has for all of its prompts and images.
  double TimeLeft(const StepTimeLimit& limit, double seconds_without) const;
  void ObserveMedian(double num_decode_steps);
  void ObserveWithout(double seconds, Decodes* decodes);
  void ObserveWith(double without, int32_t num_tokens, int32_t num_slices, double seconds);

  StepTimeLimit limit_, image_limit_;
  std::array<Decodes, 17> decodes_ = {};
  double seconds_per_token_ = 0;  // of a prompt; 0: not known
  double seconds_per_slice_ = 0;  // of an image; 0: not known
  double median_ = 1;             // of steps with decodes, in times of the same without prompts
  bool had_tokens_ = false;       // of a prompt: the last step
};

}  // namespace tandem
