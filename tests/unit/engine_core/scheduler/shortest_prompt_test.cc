// The order of prompts under SchedulingPolicy::kShortestPrompt, step by step.

#include <map>

#include "engine_core/scheduler/scheduler.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Requests named by their text; prompts that share nothing.
class Bench {
 public:
  explicit Bench(int32_t num_blocks = 1000, int32_t max_num_seqs = 4, int32_t threshold = 0)
      : kv_(KvConfig(num_blocks, max_num_seqs)),
        scheduler_(Config(max_num_seqs, threshold), &kv_) {}

  void Add(const RequestId& id, int32_t num_prompt_tokens, double arrival, int32_t max_tokens = 1,
           int64_t priority = 0) {
    wire::EngineCoreRequest request;
    request.request_id = id;
    request.prompt_token_ids.assign(static_cast<size_t>(num_prompt_tokens), ++num_added_);
    request.arrival_time = arrival;
    request.priority = priority;
    request.sampling_params.max_tokens = max_tokens;
    REQUIRE(scheduler_.Add(std::move(request), arrival).ok());
  }
  // The tokens that each request got in a step.
  std::map<RequestId, int32_t> Step() {
    const SchedulerOutput& step = scheduler_.Schedule(++now_);
    std::map<RequestId, int32_t> tokens;
    ModelOutput result;
    for (const ScheduledRequest& request : step.requests) {
      for (const Request* running : scheduler_.running()) {
        if (running->slot == request.slot) tokens[running->id()] = request.num_scheduled_tokens;
      }
      result.sampled_token_ids.push_back(request.needs_sample ? 9 : kNoToken);
    }
    scheduler_.Update(step, &result, &outputs_);
    return tokens;
  }

  KvCacheManager kv_;
  Scheduler scheduler_;

 private:
  static KvCacheConfig KvConfig(int32_t num_blocks, int32_t max_num_seqs) {
    KvCacheConfig config;
    config.num_blocks = num_blocks;
    config.block_size = 4;
    config.max_num_seqs = max_num_seqs;
    config.max_model_len = 1000;
    return config;
  }
  static SchedulerConfig Config(int32_t max_num_seqs, int32_t threshold) {
    SchedulerConfig config;
    config.max_num_seqs = max_num_seqs;
    config.max_num_batched_tokens = 100;
    config.max_model_len = 1000;
    config.policy = SchedulingPolicy::kShortestPrompt;
    config.longest_prompt_wait_s = 10;  // 10 ms for each token of a prompt
    config.long_prefill_token_threshold = threshold;
    return config;
  }

  ClientOutputs outputs_;
  TokenId num_added_ = 9;
  double now_ = 0;
};

using Tokens = std::map<RequestId, int32_t>;

TEST_CASE("shortest prompt: a long prompt in progress leaves a shorter one its room") {
  Bench bench;
  bench.Add("long", 500, 0);
  CHECK(bench.Step() == Tokens{{"long", 100}});
  bench.Add("short", 30, 1);
  CHECK(bench.Step() == Tokens{{"long", 70}, {"short", 30}});
  CHECK(bench.Step() == Tokens{{"long", 100}});
}

TEST_CASE("shortest prompt: of two in progress the shorter one is served first") {
  Bench bench;
  bench.Add("long", 900, 0);
  CHECK(bench.Step() == Tokens{{"long", 100}});
  bench.Add("shorter", 150, 1);
  CHECK(bench.Step() == Tokens{{"long", 16}, {"shorter", 84}});
  CHECK(bench.Step() == Tokens{{"long", 34}, {"shorter", 66}});
  CHECK(bench.Step() == Tokens{{"long", 100}});
}

TEST_CASE("shortest prompt: no more room is left than a chunk takes") {
  Bench bench(1000, 4, 40);
  bench.Add("long", 900, 0);
  CHECK(bench.Step() == Tokens{{"long", 100}});
  bench.Add("shorter", 150, 1);
  CHECK(bench.Step() == Tokens{{"long", 40}, {"shorter", 40}});
  CHECK(bench.Step() == Tokens{{"long", 40}, {"shorter", 40}});
}

TEST_CASE("shortest prompt: no room is left for prompts that a pause keeps out") {
  Bench bench;
  bench.Add("long", 500, 0);
  bench.Step();
  bench.Add("short", 30, 1);
  bench.scheduler_.SetPauseState(PauseState::kPausedNew);
  CHECK(bench.Step() == Tokens{{"long", 100}});
  bench.scheduler_.SetPauseState(PauseState::kUnpaused);
  CHECK(bench.Step() == Tokens{{"long", 70}, {"short", 30}});
}

TEST_CASE("shortest prompt: a more urgent prompt goes first, however long it is") {
  Bench bench;
  bench.Add("short", 150, 0, 1, 1);
  CHECK(bench.Step() == Tokens{{"short", 100}});
  bench.Add("urgent", 900, 1, 1, 0);
  CHECK(bench.Step() == Tokens{{"short", 16}, {"urgent", 84}});
}

TEST_CASE("shortest prompt: who has waited long enough is passed by nobody") {
  Bench bench(1000, 1);
  bench.Add("running", 10, 0, 2);
  bench.Step();
  bench.Add("long", 501, 1);    // due at 6.01
  bench.Add("short", 10, 5.8);  // due at 5.9
  bench.Add("late", 10, 6);     // due at 6.1
  CHECK(bench.Step() == Tokens{{"running", 1}});
  CHECK(bench.Step() == Tokens{{"short", 10}});
  CHECK(bench.Step() == Tokens{{"long", 100}});
}

TEST_CASE("shortest prompt: nothing is kept for prompts that cannot be admitted") {
  SECTION("no seat") {
    Bench bench(1000, 1);
    bench.Add("long", 500, 0);
    bench.Step();
    bench.Add("short", 30, 1);
    CHECK(bench.Step() == Tokens{{"long", 100}});
  }
  SECTION("no blocks") {
    Bench bench(1 + 126);  // 504 tokens
    bench.Add("long", 500, 0);
    for (int i = 0; i < 3; ++i) bench.Step();
    bench.Add("short", 220, -1);  // due at 1.2, long at 2; 204 tokens are free
    REQUIRE(bench.scheduler_.Waiting().size() == 1);
    CHECK(bench.Step().at("long") == 100);
  }
}

TEST_CASE("shortest prompt: of equal priority the last admitted is preempted, else the lowest") {
  for (const int64_t priority : {0, 1}) {
    CAPTURE(priority);
    Bench bench(1 + 20, 3);  // 80 tokens
    bench.Add("first", 20, 0, 40, priority);
    bench.Step();
    for (const char* id : {"second", "third"}) bench.Add(id, 20, 0.1, 40);
    bench.Step();
    REQUIRE(bench.scheduler_.num_running() == 3);
    while (bench.scheduler_.num_running() == 3) bench.Step();
    CHECK(bench.scheduler_.running()[0]->id() == (priority == 0 ? "first" : "second"));
  }
}

TEST_CASE("shortest prompt: a preempted request whose output has begun is next") {
  Bench bench(1 + 20, 2);  // 80 tokens
  bench.Add("first", 30, 0, 40);
  bench.Add("second", 40, 0.1, 40);
  bench.Step();
  for (int i = 0; i < 20 && bench.scheduler_.num_running() == 2; ++i) bench.Step();
  REQUIRE(bench.scheduler_.num_running() == 1);
  bench.Add("short", 1, 0.2);
  REQUIRE(bench.scheduler_.Waiting().size() == 2);
  CHECK(bench.scheduler_.Waiting()[0]->id() == "second");
}

}  // namespace
}  // namespace tandem
