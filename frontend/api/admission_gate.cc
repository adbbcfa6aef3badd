#include "frontend/api/admission_gate.h"

namespace tandem {

AdmissionGate::Refusal AdmissionGate::Check() const {
  if (limits_.max_num_queued_reqs > 0 && num_queued_reqs() >= limits_.max_num_queued_reqs) {
    return Refusal::kRequests;
  }
  if (limits_.max_num_queued_tokens > 0 && num_queued_tokens() >= limits_.max_num_queued_tokens) {
    return Refusal::kTokens;
  }
  return Refusal::kNone;
}

void AdmissionGate::Ticket::Add(int64_t num_reqs, int64_t num_tokens) {
  num_reqs_ += num_reqs;
  num_tokens_ += num_tokens;
  gate_->num_reqs_.fetch_add(num_reqs, std::memory_order_relaxed);
  gate_->num_tokens_.fetch_add(num_tokens, std::memory_order_relaxed);
}

Status RefusalStatus(AdmissionGate::Refusal refusal) {
  return ResourceExhaustedError(refusal == AdmissionGate::Refusal::kRequests
                                    ? "too many requests are waiting; try again later"
                                    : "too many prompt tokens are waiting; try again later");
}

}  // namespace tandem
