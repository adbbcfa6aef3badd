#pragma once

// Waiting requests in the order of admission: first come first served, by priority, or shorter
// prompts first. Thread: engine loop. Does not own the requests; a request is in at most one queue.

#include <cstddef>
#include <memory>
#include <set>
#include <vector>

#include "engine_core/scheduler/request.h"

namespace tandem {

enum class SchedulingPolicy { kFcfs, kPriority, kShortestPrompt };

class RequestQueue {
 public:
  virtual ~RequestQueue() = default;
  virtual void Add(Request* request) = 0;
  // For a request that was running: the next to be admitted, unless priorities decide otherwise.
  virtual void AddFirst(Request* request) = 0;
  virtual Request* First() const = 0;  // nullptr: empty
  // The one after a request of this queue; nullptr: it is the last.
  virtual Request* Next(Request* request) const = 0;
  virtual void Remove(Request* request) = 0;  // REQUIRES: it is in this queue
  virtual size_t size() const = 0;
  virtual std::vector<Request*> InOrder() const = 0;  // for tests and debuggers
  bool empty() const { return First() == nullptr; }
};

// A linked list through the requests.
class FcfsQueue final : public RequestQueue {
 public:
  void Add(Request* request) override;
  void AddFirst(Request* request) override;
  Request* First() const override { return first_; }
  Request* Next(Request* request) const override { return request->next_waiting; }
  void Remove(Request* request) override;
  size_t size() const override { return size_; }
  std::vector<Request*> InOrder() const override;

 private:
  Request* first_ = nullptr;
  Request* last_ = nullptr;
  size_t size_ = 0;
};

// When a request is due: after its arrival by a time for each token of its prompt that is not
// computed. Who waits is passed by shorter prompts for that long, and then by nobody. Once its
// output has begun it is due since its arrival.
double DueTime(const Request& request, double seconds_per_prompt_token);

// Priority order: lower priority numbers first, then what is due earlier, then the id as text.
bool IsAdmittedBefore(const Request* a, const Request* b);

class PriorityQueue final : public RequestQueue {
 public:
  // 0 seconds: requests are due when they arrive.
  explicit PriorityQueue(double seconds_per_prompt_token)
      : seconds_per_prompt_token_(seconds_per_prompt_token) {}
  void Add(Request* request) override;
  void AddFirst(Request* request) override { Add(request); }
  Request* First() const override { return requests_.empty() ? nullptr : *requests_.begin(); }
  Request* Next(Request* request) const override {
    const auto next = requests_.upper_bound(request);
    return next == requests_.end() ? nullptr : *next;
  }
  void Remove(Request* request) override;
  size_t size() const override { return requests_.size(); }
  std::vector<Request*> InOrder() const override { return {requests_.begin(), requests_.end()}; }

 private:
  double seconds_per_prompt_token_;
  std::set<Request*, decltype(&IsAdmittedBefore)> requests_{IsAdmittedBefore};
};

// seconds_per_prompt_token: of kShortestPrompt.
std::unique_ptr<RequestQueue> MakeRequestQueue(SchedulingPolicy policy,
                                               double seconds_per_prompt_token = 0);

}  // namespace tandem
