#include "frontend/api/admission.h"

namespace tandem {

Admission::Refusal Admission::Check() const {
  if (limits_.max_num_queued_reqs > 0 && num_queued_reqs() >= limits_.max_num_queued_reqs) {
    return Refusal::kRequests;
  }
  if (limits_.max_num_queued_tokens > 0 && num_queued_tokens() >= limits_.max_num_queued_tokens) {
    return Refusal::kTokens;
  }
  return Refusal::kNone;
}

void Admission::Ticket::Add(int64_t num_reqs, int64_t num_tokens) {
  num_reqs_ += num_reqs;
  num_tokens_ += num_tokens;
  admission_->num_reqs_.fetch_add(num_reqs, std::memory_order_relaxed);
  admission_->num_tokens_.fetch_add(num_tokens, std::memory_order_relaxed);
}

Status RefusalStatus(Admission::Refusal refusal) {
  return ResourceExhaustedError(refusal == Admission::Refusal::kRequests
                                    ? "too many requests are waiting; try again later"
                                    : "too many prompt tokens are waiting; try again later");
}

}  // namespace tandem
