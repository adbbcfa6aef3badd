#include "frontend/processing/request_stats.h"

namespace tandem {
namespace {

std::optional<double> Interval(double from, double to) {
  if (from == 0 || to == 0) return std::nullopt;
  return to - from;
}

}  // namespace

RequestStats::Step RequestStats::Update(const wire::EngineCoreOutput& output, double timestamp,
                                        double now_monotonic) {
  Step step;
  for (const wire::EngineCoreEvent& event : output.events) {
    switch (event.type) {
      case wire::EventType::kQueued:
        queued_ = event.timestamp;
        break;
      case wire::EventType::kScheduled:
        if (scheduled_ == 0) scheduled_ = event.timestamp;
        break;
      case wire::EventType::kPreempted:
        ++step.num_preemptions;
        break;
    }
  }
  num_preemptions_ += step.num_preemptions;
  if (output.prefill_stats) {
    step.prefill = *output.prefill_stats;
    num_cached_tokens_ = output.prefill_stats->num_cached_tokens;
    num_cache_creation_tokens_ = output.prefill_stats->num_cache_creation_tokens;
  }
  step.num_new_tokens = static_cast<int64_t>(output.new_token_ids.size());
  if (step.num_new_tokens == 0) return step;
  num_output_tokens_ += step.num_new_tokens;
  if (has_first_) {
    step.inter_token_time = timestamp - last_token_;
  } else {
    has_first_ = true;
    step.is_first = true;
    first_output_at_ = now_monotonic;
    first_token_ = timestamp;
  }
  last_token_ = timestamp;
  return step;
}

std::optional<double> RequestStats::time_to_first_token() const {
  if (!has_first_) return std::nullopt;
  return first_output_at_ - arrival_;
}
std::optional<double> RequestStats::queue_time() const { return Interval(queued_, scheduled_); }
std::optional<double> RequestStats::prefill_time() const {
  return Interval(scheduled_, first_token_);
}
std::optional<double> RequestStats::decode_time() const {
  return Interval(first_token_, last_token_);
}
std::optional<double> RequestStats::inference_time() const {
  return Interval(scheduled_, last_token_);
}
std::optional<double> RequestStats::time_per_output_token() const {
  if (!has_first_) return std::nullopt;
  if (num_output_tokens_ <= 1) return 0;
  return (last_token_ - first_token_) / static_cast<double>(num_output_tokens_ - 1);
}

}  // namespace tandem
