#include "engine_core/engine_core.h"

#include <algorithm>
#include <map>
#include <thread>
#include <tuple>

#include "engine_core/load_runner.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/engine_end.h"
#include "tests/simulation/sim_executor.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Records = std::vector<wire::EngineCoreOutput>;

ExecutorLimits SmallLimits() {
  ExecutorLimits limits;
  limits.num_blocks = 33;
  limits.block_size = 4;
  limits.max_num_seqs = 4;
  limits.max_num_batched_tokens = 32;
  limits.max_model_len = 64;
  limits.vocab_size = 1 << 20;  // so the simulated model does not sample EOS by chance
  return limits;
}

wire::EngineCoreRequest MakeRequest(RequestId id, int32_t max_tokens = 4, int32_t client = 0) {
  wire::EngineCoreRequest request;
  request.request_id = std::move(id);
  request.prompt_token_ids = {10, 11, 12, 13, 14};
  request.client_index = client;
  request.sampling_params.max_tokens = max_tokens;
  return request;
}

class Engine {
 public:
  explicit Engine(EngineCoreOptions options = {}) : executor(SmallLimits()) {
    auto created = EngineCore::Create(options, &executor, &clock);
    REQUIRE(created.ok());
    core = std::move(*created);
  }

  void Add(RequestId id, int32_t max_tokens = 4, int32_t client = 0) {
    core->Handle(MakeRequest(std::move(id), max_tokens, client));
  }
  void Call(uint64_t call_id, std::string method, wire::RawValue args = {}) {
    core->Handle(wire::UtilityRequest{1, call_id, std::move(method), std::move(args)});
  }
  std::vector<ClientMessage> Step() {
    clock.Advance(0.1);
    status = core->Step();
    std::vector<ClientMessage> messages;
    core->TakeMessages(&messages);
    return messages;
  }
  // Steps until nothing is left to do; all records and finished ids of all clients.
  void Finish() {
    for (int i = 0; core->HasWork() && status.ok(); ++i) {
      REQUIRE(i < 1000);
      for (ClientMessage& message : Step()) {
        for (auto& record : message.outputs.outputs) records.push_back(std::move(record));
        for (auto& id : message.outputs.finished_requests) finished.push_back(id);
        if (message.outputs.utility_output) replies.push_back(*message.outputs.utility_output);
      }
    }
  }
  size_t CountEnds(wire::FinishReason reason) const {
    size_t count = 0;
    for (const auto& record : records) count += record.finish_reason == reason;
    return count;
  }

  ManualClock clock{10};
  SimExecutor executor;
  std::unique_ptr<EngineCore> core;
  Status status;
  Records records;
  std::vector<RequestId> finished;
  std::vector<wire::UtilityOutput> replies;
};

TEST_CASE("Create: refuses a KV cache that one request could outgrow") {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 16;
  SimExecutor executor(limits);
  ManualClock clock;
  const auto engine = EngineCore::Create({}, &executor, &clock);
  CHECK(engine.status().code() == StatusCode::kResourceExhausted);
  CHECK(engine.status().message().find("holds 60 tokens, one request may need 64") !=
        std::string::npos);
}

// A request of 64 tokens holds 16 blocks of the full group and 5 of the local one, because steps of
// 8 tokens and the window before them touch so many.
TEST_CASE("a KV cache with groups of layers is measured by the longest requests") {
  ExecutorLimits limits = SmallLimits();
  CHECK(SizeOf(limits).tokens == 128);
  CHECK(SizeOf(limits).max_concurrency == 2);
  limits.groups = {.num_full = 1, .num_local = 1, .window = 6};
  limits.max_num_batched_tokens = 8;
  limits.num_blocks = 1 + 3 * 21;
  CHECK(SizeOf(limits).tokens == 3 * 64);
  CHECK(SizeOf(limits).max_concurrency == 3);
  limits.num_blocks = 1 + 20;
  SimExecutor executor(limits);
  ManualClock clock;
  const auto engine = EngineCore::Create({}, &executor, &clock);
  CHECK(engine.status().message().find("holds 60 tokens, one request may need 64") !=
        std::string::npos);
}

TEST_CASE("structured outputs need an engine with grammars") {
  Engine engine;
  wire::EngineCoreRequest request = MakeRequest("a");
  request.sampling_params.structured_outputs.emplace().regex = "a";
  engine.core->Handle(std::move(request));
  engine.Finish();
  REQUIRE(engine.records.size() == 1);
  CHECK(engine.records[0].error->code == wire::kErrorValidation);
  CHECK(engine.records[0].error->message == "structured output is not supported by this engine");
}

TEST_CASE("Create: a batch must hold more than what the drafter takes for a request") {
  ExecutorLimits limits = SmallLimits();
  limits.drafts = {.num_speculative_tokens = 2, .num_input_slots = 32};
  SimExecutor executor(limits);
  ManualClock clock;
  CHECK(EngineCore::Create({}, &executor, &clock).status().code() ==
        StatusCode::kFailedPrecondition);
}

TEST_CASE(
    "R25: with a drafter the engine yields the same tokens in fewer steps, and counts drafts") {
  const bool async = GENERATE(false, true);
  CAPTURE(async);
  const auto run = [=](const DraftConfig& drafts) {
    ExecutorLimits limits = SmallLimits();
    limits.drafts = drafts;
    SimExecutor executor(limits);
    if (drafts.num_speculative_tokens > 0) executor.DraftWith(1);
    ManualClock clock;
    EngineCoreOptions options;
    options.async_scheduling = async;
    auto created = EngineCore::Create(options, &executor, &clock);
    REQUIRE(created.ok());
    (*created)->Handle(MakeRequest("a", 40));
    std::vector<TokenId> text;
    wire::SpecDecodingStats counts;
    int num_steps = 0;
    for (; (*created)->HasWork(); ++num_steps) {
      REQUIRE(num_steps < 100);
      REQUIRE((*created)->Step().ok());
      std::vector<ClientMessage> messages;
      (*created)->TakeMessages(&messages);
      for (const ClientMessage& message : messages) {
        for (const auto& record : message.outputs.outputs) {
          text.insert(text.end(), record.new_token_ids.begin(), record.new_token_ids.end());
        }
        if (!message.outputs.scheduler_stats) continue;
        const auto& stats = message.outputs.scheduler_stats->spec_decoding_stats;
        if (!stats) continue;
        counts.num_drafts += stats->num_drafts;
        counts.num_accepted_tokens += stats->num_accepted_tokens;
      }
    }
    return std::tuple(text, num_steps, counts);
  };
  const auto [plain, num_plain_steps, no_counts] = run({});
  const auto [drafted, num_drafted_steps, counts] =
      run({.num_speculative_tokens = 3, .num_lookahead_tokens = 3});
  CHECK(plain.size() == 40);
  CHECK(drafted == plain);
  CHECK(num_drafted_steps < num_plain_steps);
  CHECK(no_counts.num_drafts == 0);
  CHECK(counts.num_drafts > 0);
  CHECK(counts.num_accepted_tokens > 0);
}

TEST_CASE("Create: without chunked prefill a batch must hold the longest prompt") {
  SimExecutor executor(SmallLimits());
  ManualClock clock;
  EngineCoreOptions options;
  options.scheduler.enable_chunked_prefill = false;
  CHECK_FALSE(EngineCore::Create(options, &executor, &clock).ok());
}

TEST_CASE("A request runs to its end, and every step's message has stats and the step's time") {
  Engine engine;
  CHECK_FALSE(engine.core->HasWork());
  engine.Add("a", 3, 2);
  CHECK(engine.core->HasWork());
  auto messages = engine.Step();
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].client_index == 2);
  CHECK(messages[0].outputs.timestamp == Approx(10.1));
  REQUIRE(messages[0].outputs.scheduler_stats.has_value());
  CHECK(messages[0].outputs.scheduler_stats->num_running_reqs == 1);
  CHECK(messages[0].outputs.scheduler_stats->kv_cache_usage == Approx(2.0 / 32));
  CHECK(messages[0].outputs.scheduler_stats->step_counter == 1);
  REQUIRE(messages[0].outputs.outputs.size() == 1);
  CHECK(messages[0].outputs.outputs[0].new_token_ids.size() == 1);
  engine.Finish();
  REQUIRE(engine.records.size() == 2);
  CHECK(engine.records[1].finish_reason == wire::FinishReason::kLength);
  CHECK(engine.finished == std::vector<RequestId>{"a"});
  CHECK_FALSE(engine.executor.IsSlotInUse(RequestSlot{0}));  // the last step freed it
}

TEST_CASE("ADD: a request that cannot run gets an error record and disturbs no other") {
  Engine engine;
  engine.Add("good");
  wire::EngineCoreRequest bad = MakeRequest("bad");
  bad.prompt_token_ids.assign(64, 1);
  engine.core->Handle(bad);
  engine.Finish();
  REQUIRE(engine.CountEnds(wire::FinishReason::kError) == 1);
  CHECK(engine.records[0].request_id == "bad");
  REQUIRE(engine.records[0].error.has_value());
  CHECK(engine.records[0].error->code == wire::kErrorValidation);
  CHECK(engine.records[0].error->message.find("maximum context length is 64 tokens") !=
        std::string::npos);
  CHECK_FALSE(engine.records[0].error->retryable);
  CHECK(engine.CountEnds(wire::FinishReason::kLength) == 1);
  CHECK(engine.finished.size() == 2);
}

TEST_CASE("ADD: one message may bring the choices of a prompt") {
  const auto tokens_by_id = [](const Engine& engine) {
    std::map<RequestId, std::vector<TokenId>> tokens;
    for (const auto& record : engine.records) {
      auto& ids = tokens[record.request_id];
      ids.insert(ids.end(), record.new_token_ids.begin(), record.new_token_ids.end());
    }
    return tokens;
  };
  wire::EngineCoreRequest request = MakeRequest("0_a");
  request.sampling_params.temperature = 1;
  request.sampling_params.seed = INT64_MAX;  // the next one wraps around
  Engine apart;
  for (int64_t i = 0; i < 3; ++i) {
    wire::EngineCoreRequest choice = request;
    choice.request_id = std::to_string(i) + "_a";
    choice.sampling_params.seed = i == 0 ? INT64_MAX : INT64_MIN + i - 1;
    apart.core->Handle(choice);
  }
  apart.Finish();
  Engine together;
  request.sampling_params.n = 3;
  together.core->Handle(request);
  together.Finish();
  CHECK(tokens_by_id(together) == tokens_by_id(apart));
  CHECK(together.finished.size() == 3);

  // An id that is no first choice's, or a number that is absurd: one refusal.
  for (const auto& [id, n] : {std::pair("a", 3), {"1_a", 3}, {"0_b", 1 << 30}}) {
    CAPTURE(id);
    Engine engine;
    wire::EngineCoreRequest bad = MakeRequest(id);
    bad.sampling_params.n = n;
    engine.core->Handle(bad);
    engine.Finish();
    REQUIRE(engine.records.size() == 1);
    CHECK(engine.records[0].request_id == id);
    CHECK(engine.records[0].error->message.find("must be 1") != std::string::npos);
  }
}

TEST_CASE("ADD: a request above max_num_requests gets a retryable error") {
  EngineCoreOptions options;
  options.max_num_requests = 1;
  Engine engine(options);
  engine.Add("a");
  engine.Add("b");
  engine.Finish();
  REQUIRE(engine.records[0].request_id == "b");
  REQUIRE(engine.records[0].error.has_value());
  CHECK(engine.records[0].error->retryable);
}

TEST_CASE("ADD: an absurd client index is dropped, abort_immediately ends at once") {
  Engine engine;
  engine.Add("a", 4, -1);
  engine.Add("b", 4, 1 << 30);
  CHECK_FALSE(engine.core->HasWork());
  wire::EngineCoreRequest stillborn = MakeRequest("c");
  stillborn.abort_immediately = true;
  engine.core->Handle(stillborn);
  engine.Finish();
  CHECK(engine.CountEnds(wire::FinishReason::kAbort) == 1);
  CHECK(engine.executor.num_tokens() == 0);
}

TEST_CASE("ABORT: no record, only the finished id, and unknown ids are ignored") {
  Engine engine;
  engine.Add("a", 20);
  engine.Step();
  engine.core->Handle(wire::AbortRequest{"nobody", "a", "a"});
  engine.Finish();
  CHECK(engine.records.empty());
  CHECK(engine.finished == std::vector<RequestId>{"a"});
  CHECK(engine.core->kv_cache().pool().Usage() == 0);
}

TEST_CASE("ABORT, a lost client: handled between the halves of a step, no record follows") {
  for (const bool async : {false, true}) {
    INFO("async " << async);
    EngineCoreOptions options;
    options.async_scheduling = async;
    Engine engine(options);
    engine.Add("a", 20, 0);
    engine.Add("b", 20, 1);
    engine.Add("c", 3, 2);
    engine.Step();
    REQUIRE(engine.core->BeginStep().ok());
    const EngineEvent abort = wire::AbortRequest{"a"}, lost = wire::ClientLost{1};
    engine.core->HandleAborts(abort);
    engine.core->HandleAborts(lost);
    engine.core->EndStep();
    std::vector<ClientMessage> messages;
    engine.core->TakeMessages(&messages);
    for (const ClientMessage& message : messages) {
      for (const auto& record : message.outputs.outputs) CHECK(record.request_id == "c");
    }
    engine.core->Handle(abort);  // in their turn they find nothing to do
    engine.core->Handle(lost);
    engine.Finish();
    CHECK(engine.records.size() == (async ? 2 : 1));
    CHECK(engine.records.back().finish_reason == wire::FinishReason::kLength);
    CHECK(engine.core->kv_cache().pool().Usage() == 0);
  }
}

TEST_CASE("ABORT between the halves of a step leaves everything else for its turn") {
  Engine engine;
  engine.Add("a", 20);
  REQUIRE(engine.core->BeginStep().ok());
  engine.core->HandleAborts(MakeRequest("late"));
  engine.core->HandleAborts(wire::UtilityRequest{1, 1, "get_supported_tasks", {}});
  engine.core->EndStep();
  CHECK(engine.core->scheduler().num_requests() == 1);
  std::vector<ClientMessage> messages;
  engine.core->TakeMessages(&messages);
  CHECK(messages.size() == 1);
}

TEST_CASE("ADD with the id of a live request does not end or disturb the first one's stream") {
  Engine engine;
  engine.Add("a", 3, 1);
  engine.Step();
  engine.Add("a", 9, 1);  // the same client: the id names the stream of the first
  engine.Add("a", 9, 2);  // another client gets an error
  engine.Finish();
  REQUIRE(engine.records.size() == 3);
  CHECK(engine.records[1].finish_reason == wire::FinishReason::kError);
  REQUIRE(engine.records[1].error.has_value());
  CHECK(engine.records[1].error->message == "request id a is in use");
  CHECK(engine.records[2].finish_reason == wire::FinishReason::kLength);
  CHECK(engine.finished == std::vector<RequestId>{"a", "a"});
}

TEST_CASE("ADD with the id of a live request: the error goes to its sender only") {
  Engine engine;
  engine.Add("a", 3, 1);
  engine.Step();
  engine.Add("a", 9, 2);
  size_t num_messages = 0;
  for (const ClientMessage& message : engine.Step()) {
    ++num_messages;
    REQUIRE(message.outputs.outputs.size() == 1);
    CHECK(message.outputs.outputs[0].error.has_value() == (message.client_index == 2));
    CHECK(message.outputs.finished_requests.size() == (message.client_index == 2 ? 1 : 0));
  }
  CHECK(num_messages == 2);
}

TEST_CASE(
    "Async: two steps are in flight, each result arrives a step later, nothing else differs") {
  EngineCoreOptions options;
  options.async_scheduling = true;
  Engine engine(options);
  Engine reference;
  for (Engine* e : {&engine, &reference}) e->Add("a", 4);
  CHECK(engine.Step().empty());
  CHECK(engine.executor.num_steps() == 1);
  const auto messages = engine.Step();
  CHECK(engine.executor.num_steps() == 2);
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].outputs.outputs[0].new_token_ids.size() == 1);
  CHECK(messages[0].outputs.scheduler_stats.has_value());
  engine.Finish();
  reference.Finish();
  REQUIRE(engine.records.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(engine.records[i].new_token_ids == reference.records[i + 1].new_token_ids);
  }
  CHECK(engine.records[2].finish_reason == wire::FinishReason::kLength);
  CHECK(engine.executor.num_tokens() == reference.executor.num_tokens());  // R5
  CHECK_FALSE(engine.executor.IsSlotInUse(RequestSlot{0}));
}

TEST_CASE("Async: the reply to a pause waits until nothing is in flight") {
  EngineCoreOptions options;
  options.async_scheduling = true;
  Engine engine(options);
  engine.Add("a", 30);
  engine.Step();
  engine.Step();
  engine.Call(1, "pause_scheduler",
              wire::PackedArray({wire::PackedString("keep"), wire::PackedBool(false)}));
  engine.Finish();
  CHECK(engine.replies.size() == 1);
  CHECK(engine.records.size() == 1);  // of the step that was in flight
  const int64_t num_steps = engine.executor.num_steps();
  engine.Step();
  CHECK(engine.executor.num_steps() == num_steps);
}

TEST_CASE("A lost frontend's requests are dropped, others go on") {
  Engine engine;
  engine.Add("a", 20, 0);
  engine.Add("b", 3, 1);
  engine.Step();
  engine.core->Handle(wire::ClientLost{0});
  CHECK(engine.core->scheduler().num_requests() == 1);
  engine.Finish();
  CHECK(engine.CountEnds(wire::FinishReason::kLength) == 1);
}

TEST_CASE("UTILITY: a reply is a message of its own, with the call's id bit for bit") {
  Engine engine;
  const uint64_t call_id = 0xfedcba9876543210u;
  engine.Call(call_id, "get_supported_tasks");
  const auto messages = engine.Step();
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].client_index == 1);
  CHECK(messages[0].outputs.outputs.empty());
  CHECK_FALSE(messages[0].outputs.scheduler_stats.has_value());
  REQUIRE(messages[0].outputs.utility_output.has_value());
  const wire::UtilityOutput& reply = *messages[0].outputs.utility_output;
  CHECK(static_cast<uint64_t>(reply.call_id) == call_id);
  CHECK_FALSE(reply.failure_message.has_value());
  CHECK(reply.result == wire::PackedStrings({"generate"}));
}

TEST_CASE(
    "UTILITY: each method of the table replies, others and bad arguments fail with a message") {
  Engine engine;
  const wire::RawValue t = wire::PackedBool(true), f = wire::PackedBool(false);
  const struct {
    std::string method;
    wire::RawValue args;
    wire::RawValue result;
  } good[] = {
      {"is_sleeping", {}, f},
      {"is_scheduler_paused", wire::PackedArray({}), f},
      {"reset_prefix_cache", wire::PackedArray({f, f}), t},
      {"reset_mm_cache", {}, {}},
      {"reset_encoder_cache", {}, {}},
      {"get_weight_version", {}, {}},
      {"set_weight_version", wire::PackedArray({wire::PackedString("v2")}), {}},
      {"get_weight_version", {}, wire::PackedString("v2")},
      {"list_loras", {}, wire::PackedArray({})},
      {"pause_generation", wire::PackedArray({wire::PackedString("keep"), t}), {}},
      {"is_scheduler_paused", {}, t},
      {"is_sleeping", {}, t},
      {"resume_scheduler", {}, {}},
      {"is_scheduler_paused", {}, f},
      {"sleep", wire::PackedArray({wire::PackedInt(0), wire::PackedString("wait")}), {}},
      {"is_sleeping", {}, t},
      {"wake_up", wire::PackedArray({{}}), t},
      {"is_sleeping", {}, f},
      {"reset_prefix_cache", wire::PackedArray({f, t}), f},
  };
  for (const auto& call : good) {
    INFO(call.method);
    engine.Call(1, call.method, call.args);
    engine.replies.clear();
    engine.Finish();
    REQUIRE(engine.replies.size() == 1);
    CHECK_FALSE(engine.replies[0].failure_message.has_value());
    CHECK(engine.replies[0].result == call.result);
  }
  const struct {
    std::string method;
    wire::RawValue args;
    std::string words;
  } bad[] = {
      {"collective_rpc", wire::PackedArray({wire::PackedString("x")}), "collective_rpc"},
      {"pause_scheduler", wire::PackedArray({wire::PackedString("later")}), "later"},
      {"sleep", {}, "--enable-sleep-mode was not given"},
      {"release_kv_cache_memory", {}, "--enable-sleep-mode was not given"},
      {"sleep", wire::PackedArray({wire::PackedInt(3)}), "must be 0, 1 or 2"},
      {"wake_up", wire::PackedArray({wire::PackedStrings({"weight"})}), "tag \"weight\""},
      {"wake_up", wire::PackedArray({wire::PackedInt(1)}), "array"},
      {"sleep", wire::PackedArray({wire::PackedInt(0), wire::PackedString("later")}), "later"},
      {"reset_prefix_cache", wire::PackedArray({wire::PackedString("yes")}), "true or false"},
      {"reset_prefix_cache", wire::PackedInt(3), "array"},
  };
  for (const auto& call : bad) {
    INFO(call.method);
    engine.Call(1, call.method, call.args);
    engine.replies.clear();
    engine.Finish();
    REQUIRE(engine.replies.size() == 1);
    REQUIRE(engine.replies[0].failure_message.has_value());
    CHECK(engine.replies[0].failure_message->find(call.words) != std::string::npos);
  }
}

TEST_CASE("B13 reset_prefix_cache: refused beside running requests unless they are preempted") {
  Engine engine;
  engine.Add("a", 8);
  engine.Step();
  engine.Call(1, "reset_prefix_cache", wire::PackedArray({wire::PackedBool(false)}));
  engine.Call(2, "reset_prefix_cache", wire::PackedArray({wire::PackedBool(true)}));
  CHECK(engine.core->scheduler().num_waiting() == 1);
  engine.Finish();
  REQUIRE(engine.replies.size() == 2);
  CHECK(engine.replies[0].result == wire::PackedBool(false));
  CHECK(engine.replies[1].result == wire::PackedBool(true));
  CHECK(engine.records.size() == 7);
  CHECK(engine.records.back().finish_reason == wire::FinishReason::kLength);
}

TEST_CASE("Pause keep: nothing runs, requests are kept, the engine sleeps until resumed") {
  Engine engine;
  engine.Add("a", 6);
  engine.Step();
  engine.Call(1, "pause_scheduler",
              wire::PackedArray({wire::PackedString("keep"), wire::PackedBool(false)}));
  engine.Add("b", 2);
  engine.Finish();
  CHECK(engine.replies.size() == 1);
  CHECK_FALSE(engine.core->HasWork());
  CHECK(engine.records.empty());
  CHECK(engine.core->scheduler().num_requests() == 2);
  engine.Call(2, "resume_scheduler");
  engine.Finish();
  CHECK(engine.CountEnds(wire::FinishReason::kLength) == 2);
}

TEST_CASE("Pause wait: running requests finish before the reply, and new ones are refused") {
  Engine engine;
  engine.Add("a", 4);
  engine.Step();
  engine.Call(1, "pause_scheduler", wire::PackedArray({wire::PackedString("wait")}));
  engine.Add("late", 4);
  engine.Step();
  CHECK(engine.core->scheduler().num_running() == 1);
  engine.Finish();
  REQUIRE(engine.replies.size() == 1);
  CHECK(engine.CountEnds(wire::FinishReason::kLength) == 1);
  CHECK(engine.core->kv_cache().pool().num_cached_hashes() == 0);  // cleared with the pause
  engine.Add("later", 4);
  engine.records.clear();
  engine.Finish();
  REQUIRE(engine.records.size() == 1);
  REQUIRE(engine.records[0].error.has_value());
  CHECK(engine.records[0].error->code == wire::kErrorEnginePaused);
  CHECK(engine.records[0].error->retryable);
}

TEST_CASE("Pause abort: every request ends with an abort record before the reply") {
  Engine engine;
  for (const char* id : {"a", "b", "c", "d", "waiting"}) engine.Add(id, 20);
  engine.Step();
  engine.Call(1, "pause_scheduler");
  const auto messages = engine.Step();
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].outputs.outputs.size() == 5);
  CHECK(messages[0].outputs.outputs[0].finish_reason == wire::FinishReason::kAbort);
  CHECK(messages[0].outputs.finished_requests.size() == 5);
  CHECK(messages[1].outputs.utility_output.has_value());
}

EngineCoreOptions SleepOptions() {
  EngineCoreOptions options;
  options.enable_sleep_mode = true;
  return options;
}

wire::RawValue LevelAndMode(int64_t level, const std::string& mode) {
  return wire::PackedArray({wire::PackedInt(level), wire::PackedString(mode)});
}

TEST_CASE("Sleep: memory is released when nothing runs, and what was kept goes on after it") {
  const bool async = GENERATE(false, true);
  const int64_t level = GENERATE(1, 2);
  EngineCoreOptions options = SleepOptions();
  options.async_scheduling = async;
  Engine whole, engine(options);
  for (Engine* one : {&whole, &engine}) {
    one->Add("a", 12);
    one->Add("b", 9);
    for (int i = 0; i < 2; ++i) {
      for (ClientMessage& message : one->Step()) {
        for (auto& record : message.outputs.outputs) one->records.push_back(std::move(record));
      }
    }
  }
  engine.Call(1, "sleep", LevelAndMode(level, "keep"));
  engine.Finish();
  REQUIRE(engine.replies.size() == 1);
  CHECK_FALSE(engine.replies[0].failure_message);
  CHECK(engine.executor.released() == MemoryParts{true, true});
  CHECK(engine.executor.rereads() == (level == 2));
  CHECK(engine.core->is_sleeping());
  CHECK(engine.core->scheduler().num_requests() == 2);
  CHECK(engine.core->kv_cache().pool().num_cached_hashes() == 0);
  engine.Add("while asleep", 3);
  engine.core->Handle(wire::AbortRequest{"b"});
  engine.Finish();
  engine.Call(2, "wake_up");
  engine.Finish();
  CHECK(engine.replies.back().result == wire::PackedBool(true));
  CHECK_FALSE(engine.core->is_sleeping());
  whole.Finish();
  const auto tokens_of = [](const Engine& one) {
    std::vector<TokenId> tokens;
    for (const auto& record : one.records) {
      if (record.request_id == "a") {
        tokens.insert(tokens.end(), record.new_token_ids.begin(), record.new_token_ids.end());
      }
    }
    return tokens;
  };
  CHECK(engine.status.ok());
  // The simulated model reads no KV that it has not written since.
  CHECK(tokens_of(engine) == tokens_of(whole));
  CHECK(engine.CountEnds(wire::FinishReason::kLength) == 2);
}

// Keeps the blocks of each request that ends.
class KeepingConnector final : public KvConnector {
 public:
  std::optional<KvMatch> Match(const Request&, int32_t) override { return KvMatch{}; }
  void OnAllocated(const Request&, std::span<const BlockId>, int32_t, const KvMatch&) override {}
  KvEnding OnFinished(const Request&, wire::RequestStatus,
                      std::span<const BlockId> table) override {
    return {.keeps_blocks = !table.empty()};
  }
};

TEST_CASE("Sleep: blocks that a connector keeps are read first") {
  const std::string mode = GENERATE("abort", "wait", "keep");
  CAPTURE(mode);
  KeepingConnector connector;
  EngineCoreOptions options = SleepOptions();
  options.kv_connector = &connector;
  Engine engine(options);
  std::vector<RequestId> released;
  engine.executor.TransferWith([&](KvTransferReport* report) {
    report->released = std::exchange(released, std::vector<RequestId>());
    return OkStatus();
  });
  engine.Add("a", 2);
  while (!engine.core->scheduler().transfers().keeps_any()) engine.Step();
  engine.Call(1, "sleep", LevelAndMode(1, mode));
  for (int i = 0; i < 5; ++i) {
    for (const ClientMessage& message : engine.Step()) CHECK_FALSE(message.outputs.utility_output);
    CHECK(engine.executor.released() == MemoryParts{});
    CHECK(engine.core->HasWork());
  }
  released = {"a"};
  engine.Finish();
  REQUIRE(engine.replies.size() == 1);
  CHECK_FALSE(engine.replies[0].failure_message);
  CHECK(engine.executor.released() == MemoryParts{true, true});
}

TEST_CASE("Sleep: tags restore their parts, and only then does anything run") {
  Engine engine(SleepOptions());
  const std::string mode = GENERATE("abort", "wait", "keep");
  CAPTURE(mode);
  engine.Call(1, "sleep", LevelAndMode(1, mode));
  engine.Finish();
  const auto reply_to = [&](const std::string& method, const wire::RawValue& args) {
    engine.Call(2, method, args);
    engine.Finish();
    return engine.replies.back();
  };
  const auto tags = [](const std::vector<std::string>& words) {
    return wire::PackedArray({wire::PackedStrings(words)});
  };
  const wire::RawValue t = wire::PackedBool(true), f = wire::PackedBool(false);
  CHECK(reply_to("wake_up", tags({"scheduling"})).result == f);
  CHECK(reply_to("resume_scheduler", {}).failure_message->find("/wake_up") != std::string::npos);
  CHECK(reply_to("wake_up", tags({"weights"})).result == f);
  CHECK(engine.executor.released() == MemoryParts{false, true});
  CHECK(reply_to("resume_scheduler", {}).failure_message->find("KV cache") != std::string::npos);
  CHECK(reply_to("is_sleeping", {}).result == t);
  // Asleep already: what is there is released again.
  CHECK_FALSE(reply_to("sleep", LevelAndMode(2, mode)).failure_message);
  CHECK(engine.executor.released() == MemoryParts{true, true});
  engine.executor.FailNextLoad();
  CHECK(reply_to("wake_up", {}).failure_message->find("lacks a tensor") != std::string::npos);
  CHECK(reply_to("is_sleeping", {}).result == t);
  CHECK(reply_to("wake_up", tags({"kv_cache", "weights"})).result == t);
  CHECK(reply_to("is_sleeping", {}).result == f);
  engine.Add("a", 3);
  engine.Finish();
  CHECK(engine.CountEnds(wire::FinishReason::kLength) == 1);
}

TEST_CASE("Sleep: a KV cache alone is released in a pause, and not before it") {
  Engine engine(SleepOptions());
  engine.Add("a", 8);
  engine.Step();
  engine.Call(1, "release_kv_cache_memory");
  engine.Step();
  CHECK(engine.executor.released() == MemoryParts{});
  engine.Call(2, "pause_scheduler", wire::PackedArray({wire::PackedString("keep")}));
  engine.Finish();
  engine.replies.clear();
  engine.Call(3, "release_kv_cache_memory");
  engine.Finish();
  REQUIRE(engine.replies.size() == 1);
  CHECK_FALSE(engine.replies[0].failure_message);
  CHECK(engine.executor.released() == MemoryParts{.kv_cache = true});
  engine.Call(4, "wake_up");
  engine.Finish();
  CHECK(engine.CountEnds(wire::FinishReason::kLength) == 1);
}

TEST_CASE("Sleep: an engine that sleeps ends at once when it is asked to") {
  Engine engine(SleepOptions());
  engine.Add("a", 8);
  engine.Step();
  engine.Call(1, "sleep", LevelAndMode(1, "keep"));
  engine.Finish();
  engine.core->Handle(ShutdownRequest{});
  engine.Finish();
  CHECK(engine.core->done());
  CHECK(engine.CountEnds(wire::FinishReason::kAbort) == 1);
}

TEST_CASE("Pause: the stats count requests that wait during it") {
  Engine engine;
  engine.Call(1, "pause_scheduler");
  engine.Finish();
  engine.Add("late", 4);
  engine.Add("later", 4);
  REQUIRE(engine.core->HasWork());
  const auto messages = engine.Step();
  REQUIRE(messages.size() == 1);
  REQUIRE(messages[0].outputs.scheduler_stats.has_value());
  CHECK(messages[0].outputs.scheduler_stats->num_waiting_reqs == 2);
  CHECK_FALSE(engine.core->HasWork());
}

TEST_CASE("A request that the executor fails ends with an error, others and the engine go on") {
  Engine engine;
  engine.executor.FailRequestsWhere(
      [](const RequestId& id, auto tokens) { return id == "a" && tokens.size() == 6; });
  engine.Add("a", 8);
  engine.Add("b", 8);
  engine.Finish();
  CHECK(engine.status.ok());
  CHECK(engine.CountEnds(wire::FinishReason::kError) == 1);
  CHECK(engine.CountEnds(wire::FinishReason::kLength) == 1);
}

TEST_CASE("A lost executor ends the engine with its Status") {
  Engine engine;
  engine.executor.LoseAfter(2);
  engine.Add("a", 8);
  engine.Finish();
  CHECK(engine.status.code() == StatusCode::kUnavailable);
}

TEST_CASE("Shutdown at once: running and waiting requests are aborted with records") {
  Engine engine;
  for (const char* id : {"a", "b", "c", "d", "waiting"}) engine.Add(id, 20);
  engine.Step();
  engine.core->Handle(ShutdownRequest{});
  engine.Add("late");
  engine.Call(1, "is_sleeping");
  engine.Finish();
  CHECK(engine.CountEnds(wire::FinishReason::kAbort) == 6);
  for (const wire::EngineCoreOutput& record : engine.records) {
    CHECK((record.finished() ? std::get<std::string>(record.stop_reason) == wire::kEngineEnds
                             : record.stop_reason == wire::StopReason()));
  }
  std::sort(engine.finished.begin(), engine.finished.end());
  CHECK(engine.finished == std::vector<RequestId>{"a", "b", "c", "d", "late", "waiting"});
  REQUIRE(engine.replies.size() == 1);
  CHECK(engine.replies[0].failure_message == "Server shutting down");
  CHECK(engine.core->done());
}

TEST_CASE("Shutdown with time: running requests finish, those out of time are aborted") {
  EngineCoreOptions options;
  options.shutdown_timeout_s = 0.75;  // 7 steps of this test
  Engine engine(options);
  engine.Add("short", 4);
  engine.Add("long", 40);
  engine.Step();
  engine.core->Handle(ShutdownRequest{});
  CHECK_FALSE(engine.core->done());
  engine.Finish();
  CHECK(engine.CountEnds(wire::FinishReason::kLength) == 1);
  CHECK(engine.CountEnds(wire::FinishReason::kAbort) == 1);
  CHECK(engine.core->done());
}

TEST_CASE("An engine that leaves ends when its requests have, and takes no others") {
  Engine engine;
  engine.Add("a", 20);
  engine.Add("b", 40);
  engine.Step();
  engine.core->Handle(LeaveRequest{});
  engine.core->Handle(LeaveRequest{});
  engine.Add("late");
  CHECK_FALSE(engine.core->done());
  engine.Finish();
  CHECK(engine.CountEnds(wire::FinishReason::kLength) == 2);
  CHECK(engine.CountEnds(wire::FinishReason::kAbort) == 1);
  CHECK(engine.core->done());
}

TEST_CASE("Shutdown asked for twice does not wait for running requests") {
  EngineCoreOptions options;
  options.shutdown_timeout_s = 1000;
  Engine engine(options);
  engine.Add("long", 40);
  engine.Step();
  engine.core->Handle(ShutdownRequest{});
  engine.core->Handle(LogStateRequest{});
  CHECK(engine.core->scheduler().num_requests() == 1);
  engine.core->Handle(ShutdownRequest{});
  engine.Finish();
  CHECK(engine.CountEnds(wire::FinishReason::kAbort) == 1);
  CHECK(engine.core->done());
}

// Another process is to read the blocks of all requests, and never does.
struct PromisingConnector final : KvConnector {
  std::optional<KvMatch> Match(const Request&, int32_t) override { return KvMatch{}; }
  void OnAllocated(const Request&, std::span<const BlockId>, int32_t, const KvMatch&) override {}
  KvEnding OnFinished(const Request&, wire::RequestStatus, std::span<const BlockId>) override {
    return {.keeps_blocks = true, .is_promised = is_promised};
  }
  bool is_promised = true;
};

TEST_CASE("Shutdown waits for readers of KV as long as for requests") {
  PromisingConnector connector;
  EngineCoreOptions options;
  options.shutdown_timeout_s = 0.75;  // 7 steps of this test
  options.kv_connector = &connector;
  connector.is_promised = GENERATE(true, false);
  Engine engine(options);
  engine.executor.TransferWith([](KvTransferReport*) { return OkStatus(); });
  engine.Add("a", 2);
  while (engine.core->scheduler().num_requests() > 0) engine.Step();
  for (int i = 0; i < 3; ++i) engine.Step();
  CHECK(engine.core->HasWork());
  engine.core->Handle(ShutdownRequest{});
  CHECK(engine.core->done() != connector.is_promised);
  SECTION("it is over") {
    for (int i = 0; i < 10; ++i) engine.Step();
    CHECK(engine.core->done());
  }
  SECTION("it is asked for twice") {
    engine.core->Handle(ShutdownRequest{});
    CHECK(engine.core->done());
  }
}

TEST_CASE("Shutdown of a paused engine does not wait for requests that cannot run") {
  EngineCoreOptions options;
  options.shutdown_timeout_s = 1000;
  Engine engine(options);
  engine.Add("a", 40);
  engine.Call(1, "pause_scheduler", wire::PackedArray({wire::PackedString("keep")}));
  engine.Finish();
  engine.core->Handle(ShutdownRequest{});
  engine.Finish();
  CHECK(engine.CountEnds(wire::FinishReason::kAbort) == 1);
  CHECK(engine.core->done());
}

// The loop on its own thread, as in the process.
class RunningLoop {
 public:
  explicit RunningLoop(Engine* engine)
      : thread_([this, engine] {
          status = RunEngineLoop(engine->core.get(),
                                 {.events = &events,
                                  .send =
                                      [this](int32_t client, wire::EngineCoreOutputs message) {
                                        sent_.Push({client, std::move(message)});
                                      },
                                  .take_spent = [] { return wire::EngineCoreOutputs(); },
                                  .publish =
                                      [this](std::vector<KvCacheEvent> changes) {
                                        for (auto& change : changes) kv_events.push_back(change);
                                      }});
          sent_.Close();
        }) {}
  ~RunningLoop() { Join(); }
  void Join() {
    events.Push(ShutdownRequest{});
    if (thread_.joinable()) thread_.join();
  }
  // The next record of any message.
  wire::EngineCoreOutput NextRecord() {
    while (records_.empty()) {
      REQUIRE(sent_.WaitFor(std::chrono::seconds(20)));
      std::vector<ClientMessage> messages;
      if (!sent_.Drain(&messages)) return {};  // closed
      for (ClientMessage& message : messages) {
        for (auto& record : message.outputs.outputs) records_.push_back(std::move(record));
      }
    }
    wire::EngineCoreOutput record = std::move(records_.front());
    records_.erase(records_.begin());
    return record;
  }

  Mailbox<EngineEvent> events;
  Status status;
  std::vector<KvCacheEvent> kv_events;  // once joined

 private:
  Mailbox<ClientMessage> sent_;
  Records records_;
  std::thread thread_;
};

TEST_CASE("Loop: handles events, sleeps in between, ends after a shutdown request") {
  Engine engine;
  RunningLoop loop(&engine);
  for (int i = 0; i < 3; ++i) {
    loop.events.Push(MakeRequest("r" + std::to_string(i), 2));
    CHECK(loop.NextRecord().request_id == "r" + std::to_string(i));
    CHECK(loop.NextRecord().finish_reason == wire::FinishReason::kLength);
  }
  loop.events.Push(MakeRequest("long", 50));
  loop.NextRecord();
  loop.events.Push(ShutdownRequest{});
  wire::EngineCoreOutput last;
  do {
    last = loop.NextRecord();
  } while (!last.finished() && !last.request_id.empty());
  loop.Join();
  CHECK(loop.status.ok());
  CHECK(engine.core->done());
}

// Lets another thread do something while a step executes.
class GatedExecutor final : public Executor {
 public:
  GatedExecutor() : real_(SmallLimits()) {}
  const ExecutorLimits& limits() const override { return real_.limits(); }
  Status Submit(const SchedulerOutput& step) override {
    if (on_submit) on_submit();
    return real_.Submit(step);
  }
  Status Collect(ModelOutput* result) override { return real_.Collect(result); }

  std::function<void()> on_submit;

 private:
  SimExecutor real_;
};

TEST_CASE("Loop: an ABORT that arrives while a step executes takes effect before its result") {
  GatedExecutor executor;
  ManualClock clock(10);
  auto core = EngineCore::Create({}, &executor, &clock);
  REQUIRE(core.ok());
  Mailbox<EngineEvent> events;
  int num_steps = 0;
  executor.on_submit = [&] {
    ++num_steps;
    if (num_steps == 2) {
      // "late" is aborted before it is added; both events wait for their turn.
      events.Push(MakeRequest("late", 50));
      events.Push(wire::AbortRequest{"a", "late"});
      events.Push(MakeRequest("next", 1));
    }
    if (num_steps == 4) events.Push(ShutdownRequest{});
  };
  std::vector<wire::EngineCoreOutput> records;
  events.Push(MakeRequest("a", 50));
  const Status status =
      RunEngineLoop(core->get(), {.events = &events,
                                  .send =
                                      [&](int32_t, wire::EngineCoreOutputs message) {
                                        for (auto& r : message.outputs) records.push_back(r);
                                        if (num_steps == 3) events.Push(ShutdownRequest{});
                                      },
                                  .take_spent = [] { return wire::EngineCoreOutputs(); }});
  CHECK(status.ok());
  REQUIRE(records.size() == 2);  // the first of "a", the only one of "next"
  CHECK(records[0].request_id == "a");
  CHECK(records[1].request_id == "next");
}

TEST_CASE("Loop: returns why the executor was lost, and publishes what its last step stored") {
  EngineCoreOptions options;
  options.kv_cache.enable_events = true;
  Engine engine(options);
  engine.executor.LoseAfter(1);
  RunningLoop loop(&engine);
  loop.events.Push(MakeRequest("a"));
  loop.NextRecord();
  loop.Join();
  CHECK(loop.status.code() == StatusCode::kUnavailable);
  REQUIRE(loop.kv_events.size() == 1);
  CHECK(std::holds_alternative<BlockStored>(loop.kv_events[0]));
}

}  // namespace
}  // namespace tandem
