#include "frontend/api/admission_gate.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

constexpr double kKept = 0.9;  // of the sums at each first token
constexpr double kMaxRetryAfter = 600;

}  // namespace

AdmissionGate::Refusal AdmissionGate::Check() const {
  const AdmissionLimits limits = *limits_.load();
  if (limits.max_num_queued_reqs > 0 && num_queued_reqs() >= limits.max_num_queued_reqs) {
    return Refusal::kRequests;
  }
  if (limits.max_num_queued_tokens > 0 && num_queued_tokens() >= limits.max_num_queued_tokens) {
    return Refusal::kTokens;
  }
  if (limits.max_ttft_s > 0 && predicted_ttft_s() > limits.max_ttft_s) return Refusal::kTtft;
  return Refusal::kNone;
}

AdmissionGate::Refusal AdmissionGate::CheckPrompts(int64_t num_prompt_tokens) const {
  const double max_ttft_s = limits_.load()->max_ttft_s;
  const int64_t num_queued = num_queued_tokens();
  if (max_ttft_s <= 0 || num_queued == 0) return Refusal::kNone;
  const auto num_tokens = static_cast<double>(num_queued + num_prompt_tokens);
  return num_tokens * SecondsPerToken() > max_ttft_s ? Refusal::kTtft : Refusal::kNone;
}

void AdmissionGate::Learn(double waited_s, int64_t num_queued_tokens) {
  const auto learn = [](std::atomic<double>* sum, double value) {
    sum->store(sum->load(std::memory_order_relaxed) * kKept + value, std::memory_order_relaxed);
  };
  learn(&waited_s_, waited_s);
  learn(&waited_tokens_, static_cast<double>(num_queued_tokens));
}

double AdmissionGate::SecondsPerToken() const {
  const double tokens = waited_tokens_.load(std::memory_order_relaxed);
  return tokens > 0 ? waited_s_.load(std::memory_order_relaxed) / tokens : 0;
}

double AdmissionGate::predicted_ttft_s() const {
  return static_cast<double>(num_queued_tokens()) * SecondsPerToken();
}

// The longest of the waits for the limits that are exceeded. Without one the request was refused
// for its own length: it passes when the queue is empty.
int64_t AdmissionGate::RetryAfterSeconds() const {
  const AdmissionLimits limits = *limits_.load();
  double wait_s = 0;
  if (limits.max_ttft_s > 0) wait_s = predicted_ttft_s() - limits.max_ttft_s;
  if (limits.max_num_queued_tokens > 0) {
    const int64_t excess = num_queued_tokens() - limits.max_num_queued_tokens;
    wait_s = std::max(wait_s, static_cast<double>(excess) * SecondsPerToken());
  }
  const int64_t num_reqs = num_queued_reqs();
  if (limits.max_num_queued_reqs > 0 && num_reqs > 0) {
    const int64_t excess = num_reqs - limits.max_num_queued_reqs + 1;
    const double share = static_cast<double>(excess) / static_cast<double>(num_reqs);
    wait_s = std::max(wait_s, predicted_ttft_s() * share);
  }
  if (wait_s <= 0) wait_s = predicted_ttft_s();
  return static_cast<int64_t>(std::clamp(std::ceil(wait_s), 1.0, kMaxRetryAfter));
}

void AdmissionGate::Ticket::Add(int64_t num_reqs, int64_t num_tokens) {
  num_reqs_ += num_reqs;
  num_tokens_ += num_tokens;
  gate_->num_reqs_.fetch_add(num_reqs, std::memory_order_relaxed);
  gate_->num_tokens_.fetch_add(num_tokens, std::memory_order_relaxed);
}

Status RefusalStatus(AdmissionGate::Refusal refusal) {
  if (refusal == AdmissionGate::Refusal::kTtft) {
    return ResourceExhaustedError("the first token would take too long; try again later");
  }
  return ResourceExhaustedError(refusal == AdmissionGate::Refusal::kRequests
                                    ? "too many requests are waiting; try again later"
                                    : "too many prompt tokens are waiting; try again later");
}

}  // namespace tandem
