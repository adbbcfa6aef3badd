#pragma once

// One engine request's times and counts, as metrics and the request log need them.
// Thread: the shard's. Intervals are taken between two engine stamps or between two frontend
// stamps, never across (clocks of two processes are not comparable). Seconds. The first SCHEDULED
// counts: waiting after a preemption is not queue time; its cost lands in prefill or in decode, by
// when it happened.

#include <cstdint>
#include <optional>

#include "proto_msgpack/schema.h"

namespace tandem {

class RequestStats {
 public:
  explicit RequestStats(double arrival_monotonic) : arrival_(arrival_monotonic) {}

  // What one output message adds.
  struct Step {
    bool is_first = false;                      // holds the first token
    std::optional<double> inter_token_time;     // since the previous output, engine clock
    std::optional<wire::PrefillStats> prefill;  // with the first output
    int64_t num_new_tokens = 0;
    int64_t num_preemptions = 0;
  };
  Step Update(const wire::EngineCoreOutput& output, double timestamp, double now_monotonic);

  double arrival() const { return arrival_; }
  int64_t num_output_tokens() const { return num_output_tokens_; }
  int64_t num_cached_tokens() const { return num_cached_tokens_; }
  int64_t num_cache_creation_tokens() const { return num_cache_creation_tokens_; }
  int64_t num_preemptions() const { return num_preemptions_; }
  bool has_first_token() const { return has_first_; }

  // Unset when the request never got that far (or the engine sends no events).
  std::optional<double> time_to_first_token() const;  // arrival → first output, frontend clock
  std::optional<double> queue_time() const;           // QUEUED → first SCHEDULED
  std::optional<double> prefill_time() const;         // first SCHEDULED → first token
  std::optional<double> decode_time() const;          // first token → last token
  std::optional<double> inference_time() const;       // first SCHEDULED → last token
  // decode / (tokens - 1); 0 for one token.
  std::optional<double> time_per_output_token() const;

 private:
  double arrival_;
  double first_output_at_ = 0;  // frontend clock
  double queued_ = 0;           // 0: not seen; engine clock from here on
  double scheduled_ = 0;
  double first_token_ = 0;
  double last_token_ = 0;
  bool has_first_ = false;
  int64_t num_output_tokens_ = 0;
  int64_t num_cached_tokens_ = 0;
  int64_t num_cache_creation_tokens_ = 0;
  int64_t num_preemptions_ = 0;
};

}  // namespace tandem
