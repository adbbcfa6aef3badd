// What the recorded traces cannot show: results beyond tokens, several clients, errors of requests.
// The order of decisions is tested by tests/golden/scheduler.

#include "engine_core/scheduler/scheduler.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

class Bench {
 public:
  explicit Bench(int32_t num_blocks = 20) : kv_(KvConfig(num_blocks)), scheduler_(Config(), &kv_) {}

  Status Add(const RequestId& id, std::vector<TokenId> prompt, int32_t max_tokens = 4,
             int32_t client_index = 0) {
    wire::EngineCoreRequest request;
    request.request_id = id;
    request.prompt_token_ids = std::move(prompt);
    request.client_index = client_index;
    request.sampling_params.max_tokens = max_tokens;
    return scheduler_.Add(std::move(request), ++now_);
  }
  const SchedulerOutput& Schedule() { return scheduler_.Schedule(++now_); }
  // Every request that needs a token gets `token`.
  ModelOutput Result(const SchedulerOutput& step, TokenId token) {
    ModelOutput result;
    for (const auto& request : step.requests) {
      result.sampled_token_ids.push_back(request.needs_sample ? token : kNoToken);
    }
    return result;
  }
  std::vector<ClientMessage> Update(const SchedulerOutput& step, ModelOutput result) {
    scheduler_.Update(step, &result, &outputs_);
    std::vector<ClientMessage> messages;
    outputs_.Take(++now_, &messages);
    return messages;
  }
  std::vector<ClientMessage> Step(TokenId token = 9) {
    const SchedulerOutput& step = Schedule();
    return Update(step, Result(step, token));
  }

  static KvCacheConfig KvConfig(int32_t num_blocks) {
    KvCacheConfig config;
    config.num_blocks = num_blocks;
    config.block_size = 4;
    config.max_num_seqs = 8;
    config.max_model_len = 64;
    return config;
  }
  static SchedulerConfig Config() {
    SchedulerConfig config;
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = 32;
    config.max_model_len = 64;
    return config;
  }

  KvCacheManager kv_;
  Scheduler scheduler_;
  ClientOutputs outputs_;
  double now_ = 0;
};

TEST_CASE("Add: an id in use is refused, one that has finished can be used again") {
  Bench bench;
  REQUIRE(bench.Add("a", {1, 2}, 1).ok());
  CHECK(bench.Add("a", {3}).code() == StatusCode::kAlreadyExists);
  CHECK(bench.scheduler_.num_requests() == 1);
  bench.Step();
  CHECK(bench.Add("a", {3}).ok());
}

TEST_CASE("R6: equals that do not fit together do not preempt each other for ever") {
  KvCacheConfig cache = Bench::KvConfig(25);
  cache.block_size = 1;
  cache.enable_prefix_caching = false;
  SchedulerConfig config = Bench::Config();
  config.policy = SchedulingPolicy::kPriority;
  config.long_prefill_token_threshold = 5;
  config.reserve_full_isl = false;
  KvCacheManager kv(cache);
  Scheduler scheduler(config, &kv);
  for (const auto& [id, num_prompt_tokens] : {std::pair{"a", 21}, std::pair{"b", 17}}) {
    wire::EngineCoreRequest request;
    request.request_id = id;
    request.prompt_token_ids.assign(static_cast<size_t>(num_prompt_tokens), 5);
    request.sampling_params.max_tokens = 3;
    REQUIRE(scheduler.Add(std::move(request), 0).ok());
  }
  ClientOutputs outputs;
  int num_steps = 0;
  for (; scheduler.num_requests() > 0 && num_steps < 1000; ++num_steps) {
    const SchedulerOutput& step = scheduler.Schedule(num_steps);
    ModelOutput result;
    for (const ScheduledRequest& request : step.requests) {
      result.sampled_token_ids.push_back(request.needs_sample ? 9 : kNoToken);
    }
    scheduler.Update(step, &result, &outputs);
  }
  CHECK(scheduler.num_requests() == 0);
}

TEST_CASE("trace headers come back with the last output of their request alone") {
  Bench bench;
  wire::EngineCoreRequest traced;
  traced.request_id = "a";
  traced.prompt_token_ids = {1, 2, 3};
  traced.sampling_params.max_tokens = 2;
  traced.trace_headers.packed = "\x80";  // an empty map
  REQUIRE(bench.scheduler_.Add(std::move(traced), 0).ok());
  std::vector<ClientMessage> messages = bench.Step();
  CHECK_FALSE(messages[0].outputs.outputs[0].trace_headers);
  messages = bench.Step();
  const wire::EngineCoreOutput& last = messages[0].outputs.outputs[0];
  REQUIRE(last.finish_reason);
  REQUIRE(last.trace_headers);
  CHECK(last.trace_headers->packed == "\x80");
  bench.outputs_.Recycle(std::move(messages[0].outputs));
  REQUIRE(bench.Add("b", {1, 2, 3}, 1).ok());
  CHECK_FALSE(bench.Step()[0].outputs.outputs[0].trace_headers);
}

TEST_CASE("R32: the first record carries prefill_stats and all events, later ones neither") {
  Bench bench;
  REQUIRE(bench.Add("a", {1, 2, 3, 4, 5}).ok());
  const auto first = bench.Step()[0].outputs.outputs[0];
  REQUIRE(first.prefill_stats.has_value());
  CHECK(first.prefill_stats->num_prompt_tokens == 5);
  CHECK(first.prefill_stats->num_computed_tokens == 5);
  CHECK(first.prefill_stats->num_cache_creation_tokens == 4);
  REQUIRE(first.events.size() == 2);
  CHECK(first.events[0] == wire::EngineCoreEvent{wire::EventType::kQueued, 1});
  CHECK(first.events[1] == wire::EngineCoreEvent{wire::EventType::kScheduled, 2});
  const auto second = bench.Step()[0].outputs.outputs[0];
  CHECK_FALSE(second.prefill_stats.has_value());
  CHECK(second.events.empty());
}

TEST_CASE("R32: a request with prior outputs counts from its prompt and repeats no prefill_stats") {
  Bench bench;
  REQUIRE(bench.Add("first", {1, 2, 3, 4, 5}).ok());
  bench.Step();
  bench.scheduler_.TakeStats();
  wire::EngineCoreRequest request;
  request.request_id = "a";
  request.prompt_token_ids = {1, 2, 3, 4, 5, 8, 9};
  request.own.num_prior_output_tokens = 2;
  request.sampling_params.max_tokens = 4;
  REQUIRE(bench.scheduler_.Add(std::move(request), 1).ok());
  const SchedulerOutput& step = bench.Schedule();
  REQUIRE(step.admitted.size() == 1);
  CHECK(step.admitted[0].token_ids.size() == 7);
  CHECK(step.admitted[0].num_prompt_tokens == 5);
  auto messages = bench.Update(step, bench.Result(step, 7));
  const auto& record = messages[0].outputs.outputs[1];
  REQUIRE(record.request_id == "a");
  CHECK_FALSE(record.prefill_stats.has_value());
  CHECK_FALSE(record.finished());
  const wire::PrefixCacheStats stats = bench.scheduler_.TakeStats().prefix_cache_stats;
  CHECK(stats.queries == 0);  // its prompt was looked up before
  CHECK(stats.preempted_queries == 7);
  CHECK(stats.preempted_hits == 4);
  messages = bench.Step();
  CHECK(messages[0].outputs.outputs[1].finish_reason == wire::FinishReason::kLength);
}

TEST_CASE("R33 R35: each client gets its own records, stats go with the first message") {
  Bench bench;
  REQUIRE(bench.Add("a", {1}, 1, 2).ok());
  REQUIRE(bench.Add("b", {2}, 2, 1).ok());
  const SchedulerOutput& step = bench.Schedule();
  ModelOutput result = bench.Result(step, 9);
  bench.scheduler_.Update(step, &result, &bench.outputs_);
  bench.outputs_.SetStats(bench.scheduler_.TakeStats());
  std::vector<ClientMessage> messages;
  bench.outputs_.Take(50, &messages);
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].client_index == 1);
  CHECK(messages[0].outputs.outputs[0].request_id == "b");
  CHECK(messages[0].outputs.finished_requests.empty());
  REQUIRE(messages[0].outputs.scheduler_stats.has_value());
  CHECK(messages[0].outputs.scheduler_stats->num_running_reqs == 1);
  CHECK(messages[0].outputs.timestamp == 50);
  CHECK(messages[1].client_index == 2);
  CHECK(messages[1].outputs.finished_requests == std::vector<RequestId>{"a"});
  CHECK_FALSE(messages[1].outputs.scheduler_stats.has_value());
}

TEST_CASE("R31 R35: a step without records sends its stats alone to client 0") {
  Bench bench;
  REQUIRE(bench.Add("a", std::vector<TokenId>(40, 5), 1, 1).ok());
  const SchedulerOutput& step = bench.Schedule();
  CHECK(step.num_scheduled_tokens == 32);
  ModelOutput result = bench.Result(step, 9);
  bench.scheduler_.Update(step, &result, &bench.outputs_);
  bench.outputs_.SetStats(bench.scheduler_.TakeStats());
  std::vector<ClientMessage> messages;
  bench.outputs_.Take(1, &messages);
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].client_index == 0);
  CHECK(messages[0].outputs.outputs.empty());
}

TEST_CASE("R24: a step's result for a request aborted meanwhile is dropped") {
  Bench bench;
  REQUIRE(bench.Add("a", {1}).ok());
  REQUIRE(bench.Add("b", {2}).ok());
  const SchedulerOutput& step = bench.Schedule();
  CHECK(bench.scheduler_.Abort("a"));
  CHECK_FALSE(bench.scheduler_.Abort("a"));
  const auto messages = bench.Update(step, bench.Result(step, 9));
  REQUIRE(messages.size() == 1);
  REQUIRE(messages[0].outputs.outputs.size() == 1);
  CHECK(messages[0].outputs.outputs[0].request_id == "b");
  CHECK(messages[0].outputs.finished_requests == std::vector<RequestId>{"a"});
}

TEST_CASE("R33: a request aborted before it ran is reported as finished, and no slot is freed") {
  Bench bench;
  REQUIRE(bench.Add("a", {1}).ok());
  CHECK(bench.scheduler_.Abort("a"));
  CHECK(bench.scheduler_.pending_work() == Work::kNotices);
  const auto messages = bench.Step();
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].outputs.outputs.empty());
  CHECK(messages[0].outputs.finished_requests == std::vector<RequestId>{"a"});
  CHECK(bench.scheduler_.pending_work() == Work::kNone);
}

TEST_CASE(
    "A request that the executor fails ends alone, and its blocks are forgotten, earlier chunks "
    "too") {
  Bench bench;
  REQUIRE(bench.Add("a", std::vector<TokenId>(40, 5)).ok());
  bench.Step();
  CHECK(bench.kv_.pool().num_cached_hashes() == 8);
  REQUIRE(bench.Add("b", {6}).ok());
  const SchedulerOutput& step = bench.Schedule();
  ModelOutput result = bench.Result(step, 9);
  RequestResult& failed = result.results.emplace_back();
  failed.request_idx = 0;
  failed.status = InternalError("NaN in logits");
  failed.num_nans_in_logits = 3;
  const auto messages = bench.Update(step, std::move(result));
  REQUIRE(messages[0].outputs.outputs.size() == 2);
  const auto& a = messages[0].outputs.outputs[0];
  CHECK(a.finish_reason == wire::FinishReason::kError);
  REQUIRE(a.error.has_value());
  CHECK(a.error->message == "NaN in logits");
  CHECK(a.num_nans_in_logits == 3);
  CHECK(a.new_token_ids.empty());
  CHECK_FALSE(messages[0].outputs.outputs[1].finish_reason.has_value());
  CHECK(bench.kv_.pool().num_cached_hashes() == 0);
  CHECK(bench.scheduler_.num_running() == 1);
}

TEST_CASE("Logprobs and NaN counts reach the record of their request") {
  Bench bench;
  REQUIRE(bench.Add("a", {1}).ok());
  REQUIRE(bench.Add("b", {2}).ok());
  const SchedulerOutput& step = bench.Schedule();
  ModelOutput result = bench.Result(step, 9);
  RequestResult& extra = result.results.emplace_back();
  extra.request_idx = 1;
  extra.logprobs = wire::LogprobsRows{1, 2, {9, 4}, {-0.5f, -1.5f}, {1}};
  extra.prompt_logprobs = wire::LogprobsRows{0, 2, {}, {}, {}};
  const auto messages = bench.Update(step, std::move(result));
  const auto& records = messages[0].outputs.outputs;
  CHECK_FALSE(records[0].new_logprobs.has_value());
  REQUIRE(records[1].new_logprobs.has_value());
  CHECK(records[1].new_logprobs->token_ids == std::vector<TokenId>{9, 4});
  CHECK(records[1].new_prompt_logprobs.has_value());
}

TEST_CASE("Slots: a finished request's slot is freed in the step that gives it to another") {
  Bench bench;
  REQUIRE(bench.Add("a", {1}, 1).ok());
  const SchedulerOutput& first = bench.Schedule();
  const RequestSlot slot = first.requests[0].slot;
  bench.Update(first, bench.Result(first, 9));
  CHECK(bench.scheduler_.num_requests() == 0);
  REQUIRE(bench.Add("b", {2}).ok());
  const SchedulerOutput& step = bench.Schedule();
  CHECK(step.freed_slots == std::vector<RequestSlot>{slot});
  REQUIRE(step.admitted.size() == 1);
  CHECK(*step.admitted[0].request_id == "b");
  CHECK(step.requests[0].slot == slot);
  CHECK(step.requests[0].kind == ScheduledKind::kNew);
}

TEST_CASE("DebugString names every request with its state and blocks") {
  Bench bench;
  REQUIRE(bench.Add("alpha", {1, 2, 3, 4, 5}).ok());
  bench.Step();
  REQUIRE(bench.Add("beta", {1}).ok());
  const std::string text = bench.scheduler_.DebugString();
  CHECK(text.find("alpha RUNNING tokens 5+1 computed 5 slot 0 preempted 0 blocks 1 2") !=
        std::string::npos);
  CHECK(text.find("beta WAITING") != std::string::npos);
}

}  // namespace
}  // namespace tandem
