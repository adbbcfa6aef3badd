// Tokens that follow a sampled one for certain: they are output with it, and computed in one chunk.

#include "engine_core/scheduler/scheduler.h"
#include "tests/support/small_scheduler.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Tokens = std::vector<TokenId>;

constexpr TokenId kStopToken = 7;

class Bench {
 public:
  explicit Bench(int32_t num_blocks = 40, int32_t max_num_batched_tokens = 64)
      : kv_(SmallCache(num_blocks)), scheduler_(SmallConfig(max_num_batched_tokens), &kv_) {}

  void Add(const RequestId& id, int32_t num_prompt_tokens, int32_t max_tokens = 40) {
    wire::EngineCoreRequest request = CountingRequest(id, num_prompt_tokens, max_tokens, 100);
    request.sampling_params.stop_token_ids = {kStopToken};
    REQUIRE(scheduler_.Add(std::move(request), ++now_, {.grammar = true}).ok());
    scheduler_.EndGrammarWait({id, scheduler_.Find(id)->order, OkStatus()}, &outputs_);
  }
  const SchedulerOutput& Schedule() { return *(step_ = &scheduler_.Schedule(++now_)); }
  // The step's first request samples this, and these follow.
  void Force(const Tokens& tokens) {
    SchedulerOutput& output = scheduler_.newest_step().output;
    output.forced_token_ids = tokens;
    output.token_masks.push_back({.request_idx = 0,
                                  .words = {},
                                  .forced_begin = 0,
                                  .num_forced = static_cast<int32_t>(tokens.size())});
  }
  wire::EngineCoreOutput Update(TokenId sampled) {
    ModelOutput result;
    result.sampled_token_ids.assign(step_->requests.size(), kNoToken);
    for (size_t i = 0; i < step_->requests.size(); ++i) {
      if (step_->requests[i].needs_sample) result.sampled_token_ids[i] = sampled;
    }
    scheduler_.Update(*step_, &result, &outputs_);
    auto records = TakeRecords(&outputs_, ++now_);
    return records.empty() ? wire::EngineCoreOutput() : std::move(records[0]);
  }

  KvCacheManager kv_;
  Scheduler scheduler_;
  ClientOutputs outputs_;
  const SchedulerOutput* step_ = nullptr;
  double now_ = 0;
};

TEST_CASE("forced tokens are output with the sampled one and computed as a chunk") {
  Bench bench;
  bench.Add("a", 5);
  bench.Schedule();
  bench.Force({11, 12, 13});
  CHECK(bench.Update(10).new_token_ids == Tokens{10, 11, 12, 13});
  const SchedulerOutput& next = bench.Schedule();
  REQUIRE(next.requests.size() == 1);
  CHECK(next.requests[0].num_computed_tokens == 5);
  CHECK(next.requests[0].num_scheduled_tokens == 4);
  CHECK(next.requests[0].needs_sample);
  CHECK(bench.Update(14).new_token_ids == Tokens{14});
  CHECK(bench.Schedule().requests[0].num_scheduled_tokens == 1);
}

TEST_CASE("a stop token or max_tokens ends a request among its forced tokens") {
  Bench bench;
  bench.Add("a", 5);
  bench.Schedule();
  bench.Force({11, kStopToken, 13});
  const wire::EngineCoreOutput stopped = bench.Update(10);
  CHECK(stopped.new_token_ids == Tokens{10, 11, kStopToken});
  CHECK(stopped.finish_reason == wire::FinishReason::kStop);
  bench.Add("b", 5, /*max_tokens=*/3);
  bench.Schedule();
  bench.Force({11, 12, 13});
  const wire::EngineCoreOutput full = bench.Update(10);
  CHECK(full.new_token_ids == Tokens{10, 11, 12});
  CHECK(full.finish_reason == wire::FinishReason::kLength);
  CHECK(bench.kv_.pool().num_free() == bench.kv_.pool().num_blocks() - 1);
}

TEST_CASE("a chunk of forced tokens keeps to the step's budget") {
  Bench bench(40, /*max_num_batched_tokens=*/3);
  bench.Add("a", 3);
  bench.Schedule();
  bench.Force({11, 12, 13, 14});
  bench.Update(10);
  const SchedulerOutput& first = bench.Schedule();
  CHECK(first.requests[0].num_scheduled_tokens == 3);
  CHECK_FALSE(first.requests[0].needs_sample);
  CHECK(bench.Update(kNoToken).new_token_ids.empty());
  const SchedulerOutput& second = bench.Schedule();
  CHECK(second.requests[0].num_computed_tokens == 6);
  CHECK(second.requests[0].num_scheduled_tokens == 2);
  CHECK(second.requests[0].needs_sample);
}

TEST_CASE("forced tokens are dropped with the token that they follow") {
  Bench bench;
  bench.Add("a", 5);
  bench.Schedule();
  bench.Force({11, 12});
  bench.scheduler_.SetPauseState(PauseState::kPausedAll);
  REQUIRE(bench.scheduler_.ResetPrefixCache(/*preempt_running=*/true, ++bench.now_));
  bench.scheduler_.SetPauseState(PauseState::kUnpaused);
  CHECK(bench.Update(10).new_token_ids.empty());
  CHECK(bench.scheduler_.Find("a")->num_output_tokens() == 0);
  const SchedulerOutput& next = bench.Schedule();
  CHECK(next.requests[0].kind == ScheduledKind::kResumed);
  CHECK(next.requests[0].num_scheduled_tokens == 5);
}

}  // namespace
}  // namespace tandem
