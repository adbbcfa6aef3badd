// Steps scheduled before the tokens of previous steps are known: rules R3 to R5, R23, R24 and B7
// where they differ from synchronous scheduling.

#include <deque>

#include "engine_core/scheduler/scheduler.h"
#include "tests/support/small_scheduler.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Records = std::vector<wire::EngineCoreOutput>;
using Scheduled = std::vector<std::pair<int32_t, int32_t>>;  // slot, tokens

constexpr TokenId kStopToken = 7;

// A scheduler whose steps the test updates by hand. Output n of a request is token 100 + n.
class Pipeline {
 public:
  explicit Pipeline(int32_t num_blocks = 40, int32_t num_pipeline_steps = 1)
      : kv_(SmallCache(num_blocks)), scheduler_(ConfigOf(num_pipeline_steps), &kv_) {}
  static SchedulerConfig ConfigOf(int32_t num_pipeline_steps) {
    SchedulerConfig config = SmallConfig();
    config.num_pipeline_steps = num_pipeline_steps;
    return config;
  }

  void Add(const RequestId& id, int32_t num_prompt_tokens, int32_t max_tokens = 20,
           TokenId first_token = 0) {
    wire::EngineCoreRequest request =
        CountingRequest(id, num_prompt_tokens, max_tokens, first_token);
    request.sampling_params.stop_token_ids = {kStopToken};
    REQUIRE(scheduler_.Add(std::move(request), ++now_).ok());
  }
  const SchedulerOutput& Schedule() {
    const SchedulerOutput& step = scheduler_.Schedule(++now_);
    if (!step.empty() || !step.freed_slots.empty()) steps_.push_back(&step);
    return step;
  }
  // The slots and tokens of a new step.
  Scheduled ScheduleAndList() {
    Scheduled list;
    for (const ScheduledRequest& request : Schedule().requests) {
      list.emplace_back(Index(request.slot), request.num_scheduled_tokens);
    }
    return list;
  }
  // Folds back the oldest step; a request that samples gets `token`, or fails.
  Records Update(TokenId token, bool fails = false) {
    REQUIRE_FALSE(steps_.empty());
    const SchedulerOutput& step = *steps_.front();
    steps_.pop_front();
    ModelOutput result;
    for (size_t i = 0; i < step.requests.size(); ++i) {
      result.sampled_token_ids.push_back(step.requests[i].needs_sample && !fails ? token
                                                                                 : kNoToken);
      if (!fails) continue;
      RequestResult& failed = result.results.emplace_back();
      failed.request_idx = static_cast<int32_t>(i);
      failed.status = InternalError("NaN in logits");
    }
    scheduler_.Update(step, &result, &outputs_);
    return TakeRecords(&outputs_, ++now_, &finished_);
  }
  const Request& Find(const RequestId& id) const {
    REQUIRE(scheduler_.Find(id) != nullptr);
    return *scheduler_.Find(id);
  }
  int32_t num_held() const { return kv_.pool().num_blocks() - 1 - kv_.pool().num_free(); }

  KvCacheManager kv_;
  Scheduler scheduler_;
  ClientOutputs outputs_;
  std::deque<const SchedulerOutput*> steps_;  // in flight
  std::vector<RequestId> finished_;
  double now_ = 0;
};

TEST_CASE("stages: running requests are spread over the steps, and wait for their tokens") {
  Pipeline pipeline(40, /*num_pipeline_steps=*/2);
  pipeline.Add("a", 5, 20, 100);
  pipeline.Add("b", 5, 20, 200);
  pipeline.Add("c", 5, 20, 300);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{0, 5}, {1, 5}, {2, 5}});
  CHECK(pipeline.ScheduleAndList() == Scheduled{});  // all of them are under way
  pipeline.Update(100);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{0, 1}, {1, 1}});
  CHECK(pipeline.ScheduleAndList() == Scheduled{{2, 1}});
  CHECK(pipeline.ScheduleAndList() == Scheduled{});
  pipeline.Update(101);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{0, 1}, {1, 1}});
  pipeline.Update(101);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{2, 1}});
}

TEST_CASE("stages: the chunks of a prompt follow each other without waiting") {
  Pipeline pipeline(40, /*num_pipeline_steps=*/2);
  pipeline.Add("a", 60, 20, 100);
  pipeline.Add("b", 60, 20, 200);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{0, 60}, {1, 4}});
  CHECK(pipeline.ScheduleAndList() == Scheduled{{1, 56}});
  CHECK(pipeline.ScheduleAndList() == Scheduled{});
  pipeline.Update(100);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{0, 1}});
}

TEST_CASE("R1 async: a decode is scheduled after the step that samples its input") {
  Pipeline pipeline;
  pipeline.Add("a", 5);
  CHECK(pipeline.Schedule().requests[0].needs_sample);
  const SchedulerOutput& second = pipeline.Schedule();
  REQUIRE(second.requests.size() == 1);
  CHECK(second.requests[0].num_computed_tokens == 5);
  CHECK(second.requests[0].num_scheduled_tokens == 1);
  CHECK(second.requests[0].needs_sample);
  CHECK(pipeline.Find("a").num_output_placeholders == 2);
  CHECK(pipeline.Update(101)[0].new_token_ids == std::vector<TokenId>{101});
  CHECK(pipeline.Find("a").num_output_placeholders == 1);
  CHECK(pipeline.Find("a").num_computed_tokens == 6);
  CHECK(pipeline.Update(102)[0].new_token_ids == std::vector<TokenId>{102});
  CHECK(pipeline.Find("a").num_output_placeholders == 0);
}

TEST_CASE("R1 async: chunks of a prompt need no placeholders") {
  Pipeline pipeline;
  pipeline.Add("filler", 34);
  pipeline.Add("a", 60, 2, 100);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{0, 34}, {1, 30}});
  CHECK(pipeline.Find("a").mid_prefill);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{0, 1}, {1, 30}});
  CHECK(pipeline.Find("a").num_output_placeholders == 1);
  CHECK(pipeline.Update(9).size() == 1);
  CHECK(pipeline.Update(9).size() == 2);
}

TEST_CASE("R5: no step for a request whose last allowed token is in flight") {
  Pipeline pipeline;
  pipeline.Add("a", 5, 3);
  pipeline.Add("b", 5, 9, 50);
  CHECK(pipeline.ScheduleAndList().size() == 2);
  CHECK(pipeline.ScheduleAndList().size() == 2);
  CHECK(pipeline.ScheduleAndList().size() == 2);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{1, 1}});  // "b" goes on
  pipeline.Update(101);
  pipeline.Update(102);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{1, 1}});
  const Records last = pipeline.Update(103);
  CHECK(last[0].finish_reason == wire::FinishReason::kLength);
  CHECK(pipeline.finished_ == std::vector<RequestId>{"a"});
}

TEST_CASE("R3 R4 async: at max_model_len a request is skipped, later ones are not") {
  Pipeline pipeline;
  pipeline.Add("long", 62, 50);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{0, 62}});
  pipeline.Add("b", 5, 9, 100);
  CHECK(pipeline.ScheduleAndList() == Scheduled{{0, 1}, {1, 5}});
  CHECK(pipeline.ScheduleAndList() == Scheduled{{1, 1}});
  CHECK_FALSE(pipeline.Update(101)[0].finish_reason.has_value());
  CHECK(pipeline.Update(102)[0].finish_reason == wire::FinishReason::kLength);
}

TEST_CASE(
    "R24 R26 async: tokens sampled after a stop are dropped, also for a new owner of id and "
    "slot") {
  Pipeline pipeline;
  pipeline.Add("a", 5);
  const RequestSlot slot = pipeline.Schedule().requests[0].slot;
  pipeline.Schedule();
  const Records stopped = pipeline.Update(kStopToken);
  CHECK(stopped[0].finish_reason == wire::FinishReason::kStop);
  CHECK(pipeline.scheduler_.num_requests() == 0);
  CHECK(pipeline.num_held() == 0);
  pipeline.Add("a", 6);
  const SchedulerOutput& step = pipeline.Schedule();
  REQUIRE(step.requests.size() == 1);
  CHECK(step.requests[0].slot == slot);
  CHECK(step.freed_slots == std::vector<RequestSlot>{slot});
  CHECK(pipeline.Update(55).empty());
  CHECK(pipeline.Find("a").num_output_tokens() == 0);
  CHECK(pipeline.Find("a").num_output_placeholders == 1);
  CHECK(pipeline.Update(101)[0].new_token_ids == std::vector<TokenId>{101});
}

TEST_CASE("R24 async: an abort drops everything in flight") {
  Pipeline pipeline;
  pipeline.Add("a", 5);
  pipeline.Schedule();
  pipeline.Schedule();
  CHECK(pipeline.scheduler_.Abort("a"));
  CHECK(pipeline.num_held() == 0);
  CHECK(pipeline.Update(101).empty());
  CHECK(pipeline.Update(102).empty());
  CHECK(pipeline.finished_ == std::vector<RequestId>{"a"});
}

TEST_CASE("R24 async: a failure is reported once, later steps in flight are dropped") {
  Pipeline pipeline;
  pipeline.Add("a", 9);
  pipeline.Schedule();
  pipeline.Schedule();
  const Records failed = pipeline.Update(0, /*fails=*/true);
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].finish_reason == wire::FinishReason::kError);
  CHECK(pipeline.Update(0, /*fails=*/true).empty());
  CHECK(pipeline.finished_ == std::vector<RequestId>{"a"});
  CHECK(pipeline.kv_.pool().num_cached_hashes() == 0);
}

TEST_CASE(
    "R24: what a request has cached is forgotten when it turns out to have failed after its "
    "abort") {
  Pipeline pipeline;
  pipeline.Add("a", 9);
  pipeline.Schedule();
  CHECK(pipeline.kv_.pool().num_cached_hashes() == 2);
  CHECK(pipeline.scheduler_.Abort("a"));
  CHECK(pipeline.kv_.pool().num_cached_hashes() == 2);
  CHECK(pipeline.Update(0, /*fails=*/true).empty());
  CHECK(pipeline.kv_.pool().num_cached_hashes() == 0);
}

// Two requests in a pool that cannot hold both: "b" is preempted while its token is in flight.
class Preempted : public Pipeline {
 public:
  // 7 blocks: "a" 12 tokens and "b" 11 take 3 each; "a" needs a fifth block before "b" ends.
  Preempted() : Pipeline(8) {
    Add("a", 12);
    Add("b", 11, 20, 50);
    for (int i = 0; Find("b").status == wire::RequestStatus::kWaiting ||
                    Find("b").status == wire::RequestStatus::kRunning;
         ++i) {
      REQUIRE(i < 10);
      if (steps_.size() == 2) Update(100 + i);
      Schedule();
    }
  }
};

TEST_CASE("R23: tokens in flight at a preemption are delivered and touch no counter") {
  Preempted pipeline;
  const Request& b = pipeline.Find("b");
  CHECK(b.num_preemptions == 1);
  CHECK(b.num_computed_tokens == 0);
  CHECK(b.num_output_placeholders == 0);
  const int32_t num_stale = b.num_stale_steps;
  REQUIRE(num_stale > 0);
  const int32_t num_before = b.num_tokens();
  bool heard_of_preemption = false;
  for (int32_t i = 0; i < num_stale; ++i) {
    const Records records = pipeline.Update(200 + i);
    REQUIRE(records.size() == 2);
    CHECK(records[1].request_id == "b");
    CHECK(records[1].new_token_ids == std::vector<TokenId>{200 + i});
    for (const auto& event : records[1].events) {
      heard_of_preemption |= event.type == wire::EventType::kPreempted;
    }
  }
  CHECK(heard_of_preemption);
  CHECK(b.num_tokens() == num_before + num_stale);
  CHECK(b.num_computed_tokens == 0);
  CHECK(b.num_output_placeholders == 0);
  CHECK(b.num_stale_steps == 0);
}

TEST_CASE(
    "R23: a preempted request does not resume before its tokens arrive, others may overtake it") {
  Preempted pipeline;
  REQUIRE(pipeline.Find("b").num_stale_steps > 0);
  pipeline.scheduler_.Abort("a");  // room for all
  pipeline.Add("c", 3, 20, 90);
  const SchedulerOutput& step = pipeline.Schedule();
  REQUIRE(step.admitted.size() == 1);
  CHECK(*step.admitted[0].request_id == "c");
  while (pipeline.Find("b").num_stale_steps > 0) pipeline.Update(200);
  const SchedulerOutput& resumed = pipeline.Schedule();
  REQUIRE(resumed.admitted.size() == 1);
  CHECK(*resumed.admitted[0].request_id == "b");
  const Request& b = pipeline.Find("b");
  CHECK(resumed.admitted[0].token_ids.size() == static_cast<size_t>(b.num_tokens()));
  CHECK(b.token_ids.back() == 200);
}

TEST_CASE("R23: a stale token may end its request while it waits") {
  Preempted pipeline;
  const Records records = pipeline.Update(kStopToken);
  REQUIRE(records.size() == 2);
  CHECK(records[1].finish_reason == wire::FinishReason::kStop);
  CHECK(pipeline.scheduler_.num_requests() == 0);
  CHECK(pipeline.num_held() == 0);
  while (!pipeline.steps_.empty()) CHECK(pipeline.Update(1).empty());
}

TEST_CASE("R23: a stale failure ends its request, and its cached blocks cannot be hit") {
  Preempted pipeline;
  const Records records = pipeline.Update(0, /*fails=*/true);
  REQUIRE(records.size() == 2);
  CHECK(records[1].finish_reason == wire::FinishReason::kError);
  CHECK(pipeline.kv_.pool().num_cached_hashes() == 0);
}

TEST_CASE("R23 B13: reset_prefix_cache drops tokens in flight, and they are sampled again") {
  Pipeline pipeline;
  pipeline.Add("a", 5, 4);
  pipeline.Schedule();
  pipeline.Schedule();
  CHECK(pipeline.Update(101).size() == 1);
  CHECK(pipeline.scheduler_.ResetPrefixCache(/*preempt_running=*/true, 50));
  const SchedulerOutput& again = pipeline.Schedule();  // in the very next step
  REQUIRE(again.requests.size() == 1);
  CHECK(again.requests[0].kind == ScheduledKind::kResumed);
  CHECK(again.requests[0].num_scheduled_tokens == 6);
  CHECK(pipeline.Update(102).empty());
  CHECK(pipeline.Find("a").num_output_placeholders == 1);
  CHECK(pipeline.Update(102)[0].new_token_ids == std::vector<TokenId>{102});
  CHECK(pipeline.Find("a").num_output_tokens() == 2);
}

TEST_CASE("B7 async: a block with unknown tokens is not findable before they arrive") {
  Pipeline pipeline;
  pipeline.Add("a", 6, 3);
  pipeline.Schedule();
  CHECK(pipeline.kv_.pool().num_cached_hashes() == 1);
  pipeline.Schedule();
  pipeline.Schedule();  // tokens 6 and 7 fill the second block, both unknown
  CHECK(pipeline.kv_.pool().num_cached_hashes() == 1);
  pipeline.Update(101);
  pipeline.Update(102);  // the block's tokens are known now
  CHECK(pipeline.kv_.pool().num_cached_hashes() == 1);
  // Its request gets no further step, so the block is registered at its end.
  CHECK(pipeline.Update(103)[0].finish_reason == wire::FinishReason::kLength);
  CHECK(pipeline.kv_.pool().num_cached_hashes() == 2);
}

TEST_CASE("B7 async: a request that goes on registers a block with the step after its last token") {
  Pipeline pipeline;
  pipeline.Add("a", 6);
  for (int i = 0; i < 2; ++i) pipeline.Schedule();
  pipeline.Update(101);
  pipeline.Schedule();
  CHECK(pipeline.kv_.pool().num_cached_hashes() == 1);
  pipeline.Update(102);
  pipeline.Schedule();
  CHECK(pipeline.kv_.pool().num_cached_hashes() == 2);
}

}  // namespace
}  // namespace tandem
