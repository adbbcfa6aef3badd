#include "engine_core/scheduler/request_queue.h"

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
  CHECK(requests_.insert(request).second) << request->id() << " is already waiting";
}

void PriorityQueue::Remove(Request* request) {
  CHECK_EQ(requests_.erase(request), 1u) << request->id() << " is not waiting";
}

bool IsAdmittedBefore(const Request* a, const Request* b) {
  const auto key = [](const Request* r) {
    return std::tie(r->wire.priority, r->wire.arrival_time, r->wire.request_id);
  };
  return key(a) < key(b);
}

std::unique_ptr<RequestQueue> MakeRequestQueue(SchedulingPolicy policy) {
  if (policy == SchedulingPolicy::kPriority) return std::make_unique<PriorityQueue>();
  return std::make_unique<FcfsQueue>();
}

}  // namespace tandem
