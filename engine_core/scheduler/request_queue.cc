#include "engine_core/scheduler/request_queue.h"

#include <algorithm>
#include <tuple>

#include "common/check.h"

namespace tandem {

void FcfsQueue::Add(Request* request) {
  request->prev_waiting = last_;
  request->next_waiting = nullptr;
  (last_ == nullptr ? first_ : last_->next_waiting) = request;
  last_ = request;
  ++size_;
}

void FcfsQueue::AddFirst(Request* request) {
  request->prev_waiting = nullptr;
  request->next_waiting = first_;
  (first_ == nullptr ? last_ : first_->prev_waiting) = request;
  first_ = request;
  ++size_;
}

void FcfsQueue::Remove(Request* request) {
  Request* next = request->next_waiting;
  Request* prev = request->prev_waiting;
  CHECK(prev != nullptr || first_ == request) << request->id() << " is not waiting";
  (prev == nullptr ? first_ : prev->next_waiting) = next;
  (next == nullptr ? last_ : next->prev_waiting) = prev;
  request->next_waiting = request->prev_waiting = nullptr;
  --size_;
}

std::vector<Request*> FcfsQueue::InOrder() const {
  std::vector<Request*> requests;
  for (Request* r = first_; r != nullptr; r = r->next_waiting) requests.push_back(r);
  return requests;
}

void PriorityQueue::Add(Request* request) {
  request->due = DueTime(*request, seconds_per_prompt_token_);
  CHECK(requests_.insert(request).second) << request->id() << " is already waiting";
}

void PriorityQueue::Remove(Request* request) {
  CHECK_EQ(requests_.erase(request), 1u) << request->id() << " is not waiting";
}

double DueTime(const Request& request, double seconds_per_prompt_token) {
  const int32_t num_left =
      request.has_output ? 0 : std::max(request.num_prompt_tokens - request.num_computed_tokens, 0);
  return request.wire.arrival_time + seconds_per_prompt_token * num_left;
}

bool IsAdmittedBefore(const Request* a, const Request* b) {
  const auto key = [](const Request* r) {
    return std::tie(r->wire.priority, r->due, r->wire.request_id);
  };
  return key(a) < key(b);
}

std::unique_ptr<RequestQueue> MakeRequestQueue(SchedulingPolicy policy,
                                               double seconds_per_prompt_token) {
  if (policy == SchedulingPolicy::kFcfs) return std::make_unique<FcfsQueue>();
  return std::make_unique<PriorityQueue>(seconds_per_prompt_token);
}

}  // namespace tandem
