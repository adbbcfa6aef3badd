// The client over real endpoints; the test's thread is the shard and the engine's loop.

#include "frontend/engine_client/engine_client.h"

#include "client_setup.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using wire::RawValue;

TEST_CASE("engine_client: outputs of one engine message reach their sinks in one post") {
  Setup setup;
  Sink a, b, c;
  setup.SubmitTaken({{"a", &a}, {"b", &b}, {"c", &c}});
  CHECK(setup.client.num_inflight() == 3);
  const int posts_before = setup.shard.num_posts;
  setup.engine().Step({"a", "unknown", "b", "c"}, {"b"});
  setup.shard.RunUntil([&] { return c.num_calls == 1; });
  CHECK(setup.shard.num_posts == posts_before + 1);
  CHECK(a.token_ids == std::vector<TokenId>{1});
  CHECK(a.last_timestamp == 1);
  CHECK(b.finish_reason == FinishReason::kStop);
  CHECK_FALSE(a.over());
  CHECK(setup.client.num_inflight() == 2);
  setup.engine().Step({"a", "b", "c"}, {"a", "c"});  // b has ended: later outputs are ignored
  setup.shard.RunUntil([&] { return c.over(); });
  CHECK(b.num_calls == 1);
  CHECK(setup.client.num_inflight() == 0);
}

TEST_CASE("engine_client: aborts during a batch go out together, and only for running ids") {
  Setup setup;
  Sink a, b, c;
  setup.SubmitTaken({{"a", &a}, {"b", &b}, {"c", &c}});
  a.during_call = [&] { setup.client.Abort("a"); };
  b.during_call = [&] {
    setup.client.Abort("c");
    setup.client.Abort("unknown");
    setup.client.Abort("a");
  };
  setup.engine().Step({"a", "b", "c"});
  CHECK(setup.shard.num_posts > 0);
  setup.shard.RunUntil([&] { return b.num_calls == 1; });
  CHECK(setup.engine().Next<wire::AbortRequest>() == wire::AbortRequest{"a", "c"});
  CHECK(c.num_calls == 0);
  CHECK(setup.client.num_inflight() == 1);
  setup.client.Abort(std::vector<RequestId>{"b", "a", "b"});
  CHECK(setup.engine().Next<wire::AbortRequest>() == wire::AbortRequest{"b"});
}

TEST_CASE("engine_client: an operator's abort ends requests by name, with an output") {
  Setup setup;
  Sink a, b, c;
  setup.SubmitTaken({{"a", &a}, {"b", &b}, {"c", &c}});
  CHECK(setup.client.AbortNamed({"b", "unknown"}) == 1);
  CHECK(setup.engine().Next<wire::AbortRequest>() == wire::AbortRequest{"b"});
  CHECK(b.finish_reason == FinishReason::kAbort);
  CHECK(b.token_ids.empty());
  CHECK_FALSE(a.over());
  a.during_call = [&] { setup.client.Abort("c"); };
  c.during_call = [&] { setup.client.Abort("a"); };
  CHECK(setup.client.AbortNamed({}) == 1);  // it aborted the other, whose sink is not called
  CHECK(setup.engine().Next<wire::AbortRequest>().size() == 2);
  CHECK(a.over() != c.over());
  CHECK(setup.client.num_inflight() == 0);
}

TEST_CASE("engine_client: EndAll gives every sink the reason, and nothing is sent after it") {
  Setup setup;
  Sink a, b, c;
  setup.SubmitTaken({{"a", &a}, {"b", &b}, {"c", &c}});
  Status again;
  a.during_call = [&] { setup.client.Abort("b"); };
  b.during_call = [&] { setup.client.Abort("a"); };
  c.during_call = [&] { again = setup.Submit("d", &c).status(); };
  setup.client.EndAll(UnavailableError("going away"));
  CHECK(a.over() != b.over());  // it aborted the other, whose sink is not called
  CHECK(c.error.message() == "going away");
  CHECK(again.message() == "going away");
  CHECK(setup.engine().Next<wire::AbortRequest>().size() == 3);
  CHECK(setup.client.num_inflight() == 0);
  CHECK(setup.Submit("e", &a).status().code() == StatusCode::kUnavailable);
}

TEST_CASE("engine_client: a sink may be destroyed and a new request submitted in its last call") {
  Setup setup;
  auto first = std::make_unique<Sink>();
  Sink second;
  REQUIRE(setup.Submit("a", first.get()).ok());
  first->during_call = [&] {
    const auto submit = [&setup, &second] { REQUIRE(setup.Submit("a", &second).ok()); };
    first.reset();
    submit();
  };
  setup.engine().Next<wire::EngineCoreRequest>();
  setup.engine().Step({"a"}, {"a"});
  setup.shard.RunUntil([&] { return first == nullptr; });
  setup.engine().Next<wire::EngineCoreRequest>();
  setup.engine().Step({"a"}, {"a"});
  setup.shard.RunUntil([&] { return second.over(); });
}

TEST_CASE("engine_client: the death of a foreign engine ends its streams, 503 until it is back") {
  Setup setup;
  Sink a, b;
  int health_changes = 0;
  setup.client.OnHealthChange([&] { ++health_changes; });
  REQUIRE(setup.Submit("a", &a).ok());
  REQUIRE(setup.Submit("b", &b).ok());
  setup.engine().Step({"a"});
  setup.shard.RunUntil([&] { return a.num_calls == 1; });
  Status called;
  setup.client.CallUtility(0, "is_sleeping", {},
                           [&](StatusOr<RawValue> result) { called = result.status(); });
  setup.engines[0].reset();
  setup.shard.RunUntil([&] { return a.over() && b.over() && !called.ok(); });
  CHECK(a.error.code() == StatusCode::kUnavailable);
  CHECK(called.code() == StatusCode::kUnavailable);
  CHECK_FALSE(setup.client.healthy());
  CHECK(health_changes == 1);
  CHECK(setup.client.num_inflight() == 0);
  CHECK(setup.Submit("c", &a).status().code() == StatusCode::kUnavailable);
  setup.client.CallUtility(0, "x", {},
                           [&](StatusOr<RawValue> result) { called = result.status(); });
  CHECK(called.code() == StatusCode::kUnavailable);
  setup.client.Abort("a");

  setup.engines[0] = std::make_unique<Engine>(setup.folder);
  setup.shard.RunUntil([&] { return setup.client.healthy(); });
  CHECK(health_changes == 2);
  Sink d;
  REQUIRE(setup.Submit("d", &d).ok());
  setup.engine().Next<wire::EngineCoreRequest>();
  setup.engine().Step({"d"}, {"d"});
  setup.shard.RunUntil([&] { return d.over(); });
}

TEST_CASE("engine_client: one of our engines goes on where another died") {
  Setup setup;
  setup.engines[0] = nullptr;
  setup.shard.RunUntil([&] { return !setup.client.healthy(); });
  const auto start_engine = [&] {
    setup.engines[0] = std::make_unique<Engine>(setup.folder, 0, "1");
    setup.shard.RunUntil([&] { return setup.client.healthy(); });
  };
  start_engine();
  std::vector<ResumeOutcome> outcomes;
  setup.client.OnResumeOutcome([&](ResumeOutcome outcome) { outcomes.push_back(outcome); });
  Sink a, b, c;
  for (const auto& [id, sink] : {std::pair("a", &a), {"b", &b}, {"c", &c}}) {
    REQUIRE(setup.Submit(id, sink).ok());
  }
  const auto first = setup.engine().Next<wire::EngineCoreRequest>();
  CHECK(first.sampling_params.seed.has_value());  // the next engine is to draw the same
  setup.engine().Next<wire::EngineCoreRequest>();
  setup.engine().Next<wire::EngineCoreRequest>();
  setup.engine().Step({"a"});
  setup.engine().Step({"a"});
  setup.shard.RunUntil([&] { return a.num_calls == 2; });
  setup.engines[0] = nullptr;
  setup.shard.RunUntil([&] { return !setup.client.healthy(); });
  CHECK_FALSE(a.over());
  setup.client.Abort("b");
  start_engine();

  const auto again = setup.engine().Next<wire::EngineCoreRequest>();
  CHECK(again.request_id == "a~1");
  CHECK(again.prompt_token_ids == std::vector<TokenId>{1, 2, 1, 2});
  CHECK(again.own.num_prior_output_tokens == 2);
  CHECK(again.sampling_params == first.sampling_params);
  CHECK(setup.engine().Next<wire::EngineCoreRequest>().request_id == "c~1");
  setup.engine().Step({"a", "a~1", "c~1"}, {"a", "c~1"});  // "a" is what a dead engine had sent
  setup.shard.RunUntil([&] { return c.over(); });
  CHECK(a.num_calls == 3);
  CHECK_FALSE(a.over());
  setup.client.Abort("a");
  CHECK(setup.engine().Next<wire::AbortRequest>() == wire::AbortRequest{"a~1"});
  CHECK(outcomes == std::vector<ResumeOutcome>{ResumeOutcome::kAborted, ResumeOutcome::kResumed,
                                               ResumeOutcome::kResumed});
  CHECK(b.num_calls == 0);
}

TEST_CASE("engine_client: an engine that is back is prepared before requests go on with it") {
  Setup setup;
  const auto restart_engine = [&] {
    setup.engines[0] = nullptr;
    setup.shard.RunUntil([&] { return !setup.client.healthy(); });
    setup.engines[0] = std::make_unique<Engine>(setup.folder, 0, "1");
    setup.shard.RunUntil([&] { return setup.client.healthy(); });
  };
  restart_engine();
  setup.client.OnEngineReady([&](int engine_index) {
    setup.client.CallUtility(engine_index, "add_lora", {}, [](const auto&) {});
  });
  Sink sink;
  wire::EngineCoreRequest request;
  request.request_id = "a";
  request.prompt_token_ids = {1, 2};
  request.lora_request = wire::PackedString("an adapter");
  REQUIRE(setup.client.Submit(request, &sink).ok());
  CHECK(setup.engine().Next<wire::EngineCoreRequest>().lora_request == request.lora_request);
  restart_engine();
  CHECK(setup.engine().Next<wire::UtilityRequest>().method == "add_lora");
  const auto again = setup.engine().Next<wire::EngineCoreRequest>();
  CHECK(again.request_id == "a~1");
  CHECK(again.lora_request == request.lora_request);
}

TEST_CASE("engine_client: while it is held it is not healthy and takes no requests") {
  Setup setup;
  int health_changes = 0;
  setup.client.OnHealthChange([&] { ++health_changes; });
  setup.client.Hold(UnavailableError("not yet"));
  Sink sink;
  CHECK(setup.client.health().message() == "not yet");
  CHECK(setup.client.CheckAlive(1).message() == "not yet");
  CHECK(setup.Submit("a", &sink).status().message() == "not yet");
  setup.client.Release();
  CHECK(health_changes == 1);
  CHECK(setup.client.healthy());
  CHECK(setup.Submit("a", &sink).ok());
}

TEST_CASE("engine_client: requests move to an engine that takes over, those before it end there") {
  Setup setup;
  setup.engines[0] = nullptr;
  setup.shard.RunUntil([&] { return !setup.client.healthy(); });
  wire::Inbox<Status> left;
  setup.engines[0] = std::make_unique<Engine>(setup.folder, &left);
  setup.shard.RunUntil([&] { return setup.client.healthy(); });
  Sink a, b;
  setup.SubmitTaken({{"a", &a}, {"b", &b}});
  setup.engine().Step({"a"});
  setup.shard.RunUntil([&] { return a.num_calls == 1; });
  Status late_reply = UnavailableError("none");
  setup.client.CallUtility(0, "is_sleeping", {},
                           [&](const auto& result) { late_reply = result.status(); });
  int64_t num_moved = 0;
  setup.client.OnTakeOver([&](int, int64_t moved) { num_moved += moved; });

  Engine next(setup.folder, &left);
  setup.shard.RunUntil([&] { return num_moved == 2; });
  CHECK(setup.client.healthy());
  const auto call = setup.engine().Next<wire::UtilityRequest>();
  CHECK(setup.engine().Next<wire::AbortRequest>() == wire::AbortRequest{"a", "b"});
  const std::optional<Status> why = left.Next();
  CHECK((why && why->ok()));
  const auto again = next.Next<wire::EngineCoreRequest>();
  CHECK(again.request_id == "a~1");
  CHECK(again.prompt_token_ids == std::vector<TokenId>{1, 2, 1});
  CHECK(next.Next<wire::EngineCoreRequest>().request_id == "b~1");
  setup.engine().Step({"a", "b"}, {"b"});  // too late
  EngineCoreOutputs reply;
  reply.utility_output.emplace().call_id = call.call_id;
  setup.engine().endpoint.Send(0, std::move(reply));
  setup.shard.RunUntil([&] { return late_reply.ok(); });
  CHECK((a.num_calls == 1 && b.num_calls == 0));

  setup.engines[0] = nullptr;  // nobody misses it
  next.Step({"a~1", "b~1"}, {"a~1", "b~1"});
  setup.shard.RunUntil([&] { return a.over() && b.over(); });
  CHECK(a.finish_reason == FinishReason::kStop);
  CHECK(setup.client.healthy());
  REQUIRE(setup.Submit("c", &a).ok());
  CHECK(next.Next<wire::EngineCoreRequest>().request_id == "c");
}

TEST_CASE("engine_client: an engine of ours gets the prompt of n choices once, others n times") {
  for (const bool is_ours : {true, false}) {
    CAPTURE(is_ours);
    Setup setup;
    setup.engines[0] = nullptr;
    setup.shard.RunUntil([&] { return !setup.client.healthy(); });
    const auto version = is_ours ? std::optional<std::string>("1") : std::nullopt;
    const auto start_engine = [&] {
      setup.engines[0] = std::make_unique<Engine>(setup.folder, 0, version);
      setup.shard.RunUntil([&] { return setup.client.healthy(); });
    };
    start_engine();
    Sink a, b;
    std::vector<wire::EngineCoreRequest> choices(2);
    for (size_t i = 0; i < 2; ++i) {
      choices[i].request_id = std::to_string(i) + "_x";
      choices[i].prompt_token_ids = {1, 2};
    }
    REQUIRE(setup.client.SubmitChoices(choices, {&a, &b}).ok());
    CHECK(setup.client.SubmitChoices(choices, {&a, &b}).status().code() ==
          StatusCode::kAlreadyExists);
    CHECK(setup.client.num_inflight() == 2);
    const auto first = setup.engine().Next<wire::EngineCoreRequest>();
    CHECK(first.request_id == "0_x");
    CHECK(first.sampling_params.n == (is_ours ? 2 : 1));
    CHECK(first.sampling_params.seed.has_value() == is_ours);
    CHECK(first.current_wave == (is_ours ? 0 : -1));
    if (!is_ours) {
      const auto second = setup.engine().Next<wire::EngineCoreRequest>();
      CHECK(second.request_id == "1_x");
      CHECK(second.prompt_token_ids == first.prompt_token_ids);
    }
    setup.engine().Step({"0_x", "1_x"});
    setup.shard.RunUntil([&] { return b.num_calls == 1; });
    CHECK(a.num_calls == 1);
    if (!is_ours) continue;

    // Each is sent again by itself, with the seed that it has had.
    setup.engines[0] = nullptr;
    setup.shard.RunUntil([&] { return !setup.client.healthy(); });
    start_engine();
    for (int64_t i = 0; i < 2; ++i) {
      const auto again = setup.engine().Next<wire::EngineCoreRequest>();
      CHECK(again.request_id == std::to_string(i) + "_x~1");
      CHECK(again.sampling_params.n == 1);
      CHECK(again.sampling_params.seed == *first.sampling_params.seed + i);
      CHECK(again.prompt_token_ids.size() == 3);
    }
  }
}

TEST_CASE("engine_client: choices are taken all or none") {
  Setup setup(1, 2);
  Sink sink;
  std::vector<wire::EngineCoreRequest> choices(3);
  for (size_t i = 0; i < 3; ++i) choices[i].request_id = std::to_string(i) + "_x";
  CHECK(setup.client.SubmitChoices(choices, {&sink, &sink, &sink}).status().code() ==
        StatusCode::kResourceExhausted);
  CHECK(setup.client.num_inflight() == 0);
  choices.pop_back();
  CHECK(setup.client.SubmitChoices(choices, {&sink, &sink}).ok());
}

TEST_CASE("engine_client: a request does not wait for ever for an engine") {
  Setup setup(2);
  setup.engines.clear();
  setup.shard.RunUntil(
      [&] { return !setup.client.engine_ready(0) && !setup.client.engine_ready(1); });
  setup.engines.push_back(std::make_unique<Engine>(setup.folder, 0, "1"));
  setup.shard.RunUntil([&] { return setup.client.engine_ready(0); });
  Sink early, late;
  REQUIRE(setup.Submit("early", &early).ok());
  setup.engines.clear();
  setup.shard.RunUntil([&] { return !setup.client.engine_ready(0); });
  setup.shard.Advance(30);
  setup.engines.push_back(std::make_unique<Engine>(setup.folder, 1, "1"));
  setup.shard.RunUntil([&] { return setup.client.engine_ready(1); });
  CHECK(setup.engine().Next<wire::EngineCoreRequest>().request_id == "early~1");
  REQUIRE(setup.Submit("late", &late).ok());
  setup.engines.clear();
  setup.shard.RunUntil([&] { return !setup.client.engine_ready(1); });
  setup.shard.Advance(59);
  CHECK_FALSE(late.over());
  setup.shard.Advance(1);
  CHECK(early.error.code() == StatusCode::kUnavailable);
  CHECK(late.error.code() == StatusCode::kUnavailable);
  CHECK(setup.client.num_inflight() == 0);
}

TEST_CASE("engine_client: an engine that leaves a probe open too long is not alive") {
  Setup setup;
  CHECK(setup.client.CheckAlive(100).ok());  // sends a probe
  CHECK(setup.client.CheckAlive(109).ok());  // the same probe is open
  const auto probe = setup.engine().Next<wire::UtilityRequest>();
  CHECK(probe.method == "is_sleeping");
  const Status hung = setup.client.CheckAlive(110);
  CHECK(hung.code() == StatusCode::kUnavailable);
  CHECK(hung.message() == "engine 0 has not answered for 10 s");
  CHECK(setup.client.healthy());  // it is connected nevertheless

  EngineCoreOutputs reply;
  reply.utility_output.emplace().call_id = probe.call_id;
  setup.engine().endpoint.Send(0, std::move(reply));
  setup.shard.RunUntil([&] { return setup.client.CheckAlive(111).ok(); });
  setup.engine().Next<wire::UtilityRequest>();  // the next probe
  CHECK(setup.client.CheckAlive(120).ok());

  setup.engines[0].reset();
  setup.shard.RunUntil([&] { return !setup.client.healthy(); });
  CHECK(setup.client.CheckAlive(500).message() != hung.message());
  setup.engines[0] = std::make_unique<Engine>(setup.folder);
  setup.shard.RunUntil([&] { return setup.client.healthy(); });
  CHECK(setup.client.CheckAlive(1000).ok());  // the old probe died with the old engine
}

TEST_CASE("engine_client: what is sent to a silent engine has a limit") {
  Setup setup(1, 100, /*max_unanswered_bytes=*/5000);
  Sink sink;
  // Their clients leave at once; the bytes are on their way nevertheless.
  const auto submit_until_refused = [&] {
    int num_taken = 0;
    while (setup.Submit("r", &sink).ok() && num_taken < 1000) {
      setup.client.Abort("r");
      ++num_taken;
    }
    return num_taken;
  };
  const int num_taken = submit_until_refused();
  CHECK(num_taken > 5);
  CHECK(num_taken < 1000);
  const Status refused = setup.Submit("r", &sink).status();
  CHECK(refused.code() == StatusCode::kUnavailable);
  CHECK(refused.message().find("engine 0 is silent") != std::string::npos);

  // It continues: all that it sends for them is the reply to one probe.
  std::optional<wire::EngineInput> input;
  do {
    input = setup.engine().inbox.Next();
    REQUIRE(input.has_value());
  } while (!std::holds_alternative<wire::UtilityRequest>(*input));
  EngineCoreOutputs reply;
  reply.utility_output.emplace().call_id = std::get<wire::UtilityRequest>(*input).call_id;
  setup.engine().endpoint.Send(0, std::move(reply));
  setup.shard.RunUntil([&] { return setup.Submit("s", &sink).ok(); });
  setup.client.Abort("s");
  CHECK(submit_until_refused() > 5);
}

TEST_CASE("engine_client: of two engines the silent one gets no requests") {
  Setup setup(2, 1000, /*max_unanswered_bytes=*/5000);
  Sink sink;
  int num_taken = 0;
  for (; setup.Submit("r", &sink, 0).ok(); ++num_taken) setup.client.Abort("r");
  // By load these would go to the first engine.
  for (int i = 0; i < 2 * num_taken; ++i) {
    const std::string id = "s" + std::to_string(i);
    REQUIRE(setup.Submit(id, &sink).ok());
    CHECK(setup.engine(1).Next<wire::EngineCoreRequest>().request_id == id);
    setup.engine(1).Step({id}, {id});
    setup.shard.RunUntil([&] { return setup.client.num_inflight() == 0; });
  }
}

TEST_CASE("engine_client: an engine's error becomes a Status") {
  Setup setup;
  const auto refuse = [&](const std::string& id, std::optional<wire::EngineCoreError> error) {
    EngineCoreOutputs outputs;
    wire::EngineCoreOutput& output = outputs.outputs.emplace_back();
    output.request_id = id;
    output.finish_reason = FinishReason::kError;
    if (error) output.error = *error;
    setup.engine().endpoint.Send(0, std::move(outputs));
  };
  const auto code_of = [&](std::optional<wire::EngineCoreError> error) {
    Sink sink;
    REQUIRE(setup.Submit("r", &sink).ok());
    refuse("r", std::move(error));
    setup.shard.RunUntil([&] { return sink.over(); });
    return sink.error.code();
  };
  CHECK(code_of(wire::EngineCoreError{"validation_error", "no", false}) ==
        StatusCode::kInvalidArgument);
  CHECK(code_of(wire::EngineCoreError{"engine_paused", "later", true}) == StatusCode::kUnavailable);
  CHECK(code_of(wire::EngineCoreError{"boom", "broken", false}) == StatusCode::kInternal);
  CHECK(code_of(std::nullopt) == StatusCode::kInternal);

  // Listed as finished without a finish: the stream must not hang.
  Sink dropped;
  REQUIRE(setup.Submit("dropped", &dropped).ok());
  EngineCoreOutputs outputs;
  outputs.finished_requests = {"dropped", "unknown"};
  setup.engine().endpoint.Send(0, std::move(outputs));
  setup.shard.RunUntil([&] { return dropped.over(); });
  CHECK(dropped.error.code() == StatusCode::kInternal);
}

TEST_CASE("engine_client: replies to utility calls are matched by call id") {
  Setup setup;
  std::vector<std::string> results;
  const auto note = [&](StatusOr<RawValue> result) {
    results.push_back(result.ok() ? result->packed : result.status().message());
  };
  setup.client.CallUtility(0, "one", wire::PackedArray({wire::PackedInt(1)}), note);
  setup.client.CallUtility(0, "two", {}, note);
  const auto one = setup.engine().Next<wire::UtilityRequest>();
  const auto two = setup.engine().Next<wire::UtilityRequest>();
  CHECK(one.method == "one");
  CHECK(one.args.packed == "\x91\x01");
  CHECK(two.args.packed == "\x90");
  CHECK(one.call_id != two.call_id);
  const auto reply = [&](wire::UtilityOutput output) {
    EngineCoreOutputs outputs;
    outputs.utility_output = std::move(output);
    setup.engine().endpoint.Send(0, std::move(outputs));
  };
  reply({12345, std::nullopt, {}});
  reply({two.call_id, "two failed", {}});
  reply({one.call_id, std::nullopt, wire::PackedBool(true)});
  setup.shard.RunUntil([&] { return results.size() == 2; });
  CHECK(results == std::vector<std::string>{"two failed", "\xc3"});
}

TEST_CASE("engine_client: Submit refuses ids in use, wrong ranks and too many requests") {
  Setup setup(1, 2);
  Sink sink;
  REQUIRE(setup.Submit("a", &sink).ok());
  CHECK(setup.Submit("a", &sink).status().code() == StatusCode::kAlreadyExists);
  CHECK(setup.Submit("b", &sink, 7).status().code() == StatusCode::kInvalidArgument);
  REQUIRE(setup.Submit("b", &sink).ok());
  CHECK(setup.Submit("c", &sink).status().code() == StatusCode::kResourceExhausted);
  setup.client.Abort("b");
  CHECK(setup.Submit("c", &sink).ok());
}

TEST_CASE(
    "engine_client: the least loaded engine is chosen, a rank is obeyed, a dead engine avoided") {
  Setup setup(2);
  CHECK(setup.client.engine_info()->max_model_len == 4095);  // the smaller one
  CHECK(setup.client.engine_info()->num_gpu_blocks == 200);  // of both
  Sink sink;
  for (int i = 0; i < 4; ++i) REQUIRE(setup.Submit("spread" + std::to_string(i), &sink).ok());
  for (int i = 0; i < 2; ++i) {
    setup.engine(0).Next<wire::EngineCoreRequest>();
    setup.engine(1).Next<wire::EngineCoreRequest>();
  }
  // Engine 0 reports that it is busy: everything goes to 1 until that has as much.
  EngineCoreOutputs busy;
  busy.scheduler_stats.emplace().num_waiting_reqs = 10;
  busy.scheduler_stats->num_running_reqs = 10;
  busy.scheduler_stats->kv_cache_usage = 0.9;
  bool stats_seen = false;
  setup.client.OnStats([&](int engine_index, const wire::SchedulerStats& stats, double) {
    stats_seen = engine_index == 0 && stats.num_waiting_reqs == 10;
  });
  setup.engine(0).endpoint.Send(0, std::move(busy));
  setup.shard.RunUntil([&] { return stats_seen; });
  for (int i = 0; i < 6; ++i) REQUIRE(setup.Submit("busy" + std::to_string(i), &sink).ok());
  for (int i = 0; i < 6; ++i) setup.engine(1).Next<wire::EngineCoreRequest>();
  REQUIRE(setup.Submit("pinned", &sink, 0).ok());
  CHECK(setup.engine(0).Next<wire::EngineCoreRequest>().request_id == "pinned");

  setup.engines[1].reset();
  setup.shard.RunUntil([&] { return !setup.client.engine_ready(1); });
  CHECK(setup.client.num_inflight() == 3);
  REQUIRE(setup.Submit("left", &sink).ok());
  CHECK(setup.engine(0).Next<wire::EngineCoreRequest>().request_id == "left");
  CHECK(setup.Submit("pinned to the dead", &sink, 1).status().code() == StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem
