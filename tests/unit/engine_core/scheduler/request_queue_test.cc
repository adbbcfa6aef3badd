#include "engine_core/scheduler/request_queue.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::unique_ptr<Request> MakeRequest(std::string id, int64_t priority = 0, double arrival = 0) {
  wire::EngineCoreRequest wire;
  wire.request_id = std::move(id);
  wire.priority = priority;
  wire.arrival_time = arrival;
  wire.prompt_token_ids = {1};
  return std::make_unique<Request>(std::move(wire), 0);
}

std::string Order(const RequestQueue& queue) {
  std::string ids;
  for (const Request* request : queue.InOrder()) ids += request->id() + " ";
  return ids;
}

TEST_CASE("R9 FCFS queue: in order of adding, a preempted request goes to the front") {
  const auto queue = MakeRequestQueue(SchedulingPolicy::kFcfs);
  auto a = MakeRequest("a"), b = MakeRequest("b"), c = MakeRequest("c"), d = MakeRequest("d");
  CHECK(queue->empty());
  queue->Add(a.get());
  queue->Add(b.get());
  queue->Add(c.get());
  queue->AddFirst(d.get());
  CHECK(Order(*queue) == "d a b c ");
  CHECK(queue->First() == d.get());
  queue->Remove(b.get());
  queue->Remove(d.get());
  CHECK(Order(*queue) == "a c ");
  queue->Remove(c.get());
  queue->Add(b.get());
  CHECK(Order(*queue) == "a b ");
  CHECK(queue->size() == 2);
  queue->Remove(a.get());
  queue->Remove(b.get());
  CHECK(queue->empty());
  CHECK(queue->First() == nullptr);
}

TEST_CASE("R6 priority queue: priority, then arrival, then the id as text") {
  const auto queue = MakeRequestQueue(SchedulingPolicy::kPriority);
  auto late = MakeRequest("a", 0, 9), low = MakeRequest("b", 5, 1), r2 = MakeRequest("r2", 0, 3),
       r10 = MakeRequest("r10", 0, 3);
  for (Request* request : {low.get(), r2.get(), late.get()}) queue->Add(request);
  queue->AddFirst(r10.get());  // being preempted gives no precedence
  CHECK(Order(*queue) == "r10 r2 a b ");
  queue->Remove(r2.get());
  CHECK(Order(*queue) == "r10 a b ");
  CHECK(queue->size() == 3);
  auto least = MakeRequest("last", INT64_MAX), most = MakeRequest("first", INT64_MIN);
  queue->Add(least.get());
  queue->Add(most.get());
  CHECK(Order(*queue) == "first r10 a b last ");
}

TEST_CASE("shortest prompt queue: each token of a prompt counts as so much later an arrival") {
  const auto queue = MakeRequestQueue(SchedulingPolicy::kShortestPrompt, 0.5);
  auto longest = MakeRequest("longest", 0, 10), shorter = MakeRequest("shorter", 0, 12),
       later = MakeRequest("later", 0, 15), begun = MakeRequest("begun", 0, 14.5);
  longest->num_prompt_tokens = 9;  // due at 14.5, later at 15.5
  begun->num_prompt_tokens = 100;
  begun->has_output = true;
  for (Request* request : {begun.get(), later.get(), longest.get(), shorter.get()}) {
    queue->Add(request);
  }
  CHECK(Order(*queue) == "shorter begun longest later ");
  auto urgent = MakeRequest("urgent", -1, 99);
  queue->Add(urgent.get());
  CHECK(queue->First() == urgent.get());
}

}  // namespace
}  // namespace tandem
