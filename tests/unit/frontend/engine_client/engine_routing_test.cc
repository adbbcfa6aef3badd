// Prompts go to prefill engines first: over real endpoints, as engine_client_test.cc.

#include <memory>
#include <string>
#include <vector>

#include "client_setup.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using wire::RawValue;

// Engine 0 computes prompts of three tokens and more, engine 1 decodes.
struct Roles : Setup {
  Roles()
      : Setup({.num_engines = 2,
               .num_prefill_engines = 1,
               .prefill_min_tokens = 3,
               .health = {.hang_timeout_s = 10}},
              "1") {}

  wire::EngineCoreRequest Request(const std::string& id, size_t num_tokens = 4) {
    wire::EngineCoreRequest request;
    request.request_id = id;
    request.prompt_token_ids.assign(num_tokens, 5);
    request.sampling_params.max_tokens = 9;
    return request;
  }
  void Submit(const std::string& id, Sink* sink, int expected_engine, size_t num_tokens = 4) {
    const StatusOr<int> engine = client.Submit(Request(id, num_tokens), sink);
    REQUIRE(engine.ok());
    CHECK(*engine == expected_engine);
  }
  // The prefill engine is done with it.
  void EndPrefill(const std::string& id) {
    EngineCoreOutputs outputs;
    wire::EngineCoreOutput& output = outputs.outputs.emplace_back();
    output.request_id = id;
    output.new_token_ids = {77};
    output.finish_reason = FinishReason::kLength;
    output.kv_transfer_params = params;
    outputs.finished_requests = {id};
    engine(0).endpoint.Send(0, std::move(outputs));
  }
  std::string NextId(size_t i) { return engine(i).Next<wire::EngineCoreRequest>().request_id; }
  void Kill(int i) {
    engines[static_cast<size_t>(i)].reset();
    shard.RunUntil([&] { return !client.engine_ready(i); });
  }
  void Start(int i) {
    engines[static_cast<size_t>(i)] = std::make_unique<Engine>(folder, i, "1");
    shard.RunUntil([&] { return client.engine_ready(i); });
  }

  const RawValue params = {"\x81\x01\x02"};
};

TEST_CASE("engine_routing: a prompt is computed by one engine and decoded by the other") {
  Roles setup;
  Sink a;
  setup.Submit("a", &a, 0);
  const auto prefill = setup.engine(0).Next<wire::EngineCoreRequest>();
  CHECK(prefill.request_id == "a~p1");
  CHECK(prefill.sampling_params.max_tokens == 1);
  CHECK(setup.client.num_inflight() == 1);
  setup.EndPrefill("a~p1");
  setup.shard.RunUntil([&] { return !a.engines.empty(); });
  CHECK(a.engines == std::vector<int>{1});
  CHECK(a.num_calls == 0);
  const auto decode = setup.engine(1).Next<wire::EngineCoreRequest>();
  CHECK(decode.request_id == "a");
  CHECK(decode.sampling_params.max_tokens == 9);
  CHECK(decode.prompt_token_ids.size() == 4);
  CHECK(decode.sampling_params.extra_args.packed ==
        "\x81" + wire::PackedString("kv_transfer_params").packed + setup.params.packed);
  setup.engine(1).Step({"a"}, {"a"});
  setup.shard.RunUntil([&] { return a.over(); });
  CHECK(a.token_ids == std::vector<TokenId>{1});
  CHECK(setup.client.num_inflight() == 0);
}

TEST_CASE("engine_routing: short prompts and those that name an engine go straight to one") {
  Roles setup;
  Sink sink;
  setup.Submit("short", &sink, 1, 2);
  CHECK(setup.NextId(1) == "short");
  for (const int rank : {0, 1}) {
    wire::EngineCoreRequest request = setup.Request("rank" + std::to_string(rank));
    request.data_parallel_rank = rank;
    CHECK(*setup.client.Submit(request, &sink) == rank);
    CHECK(setup.NextId(static_cast<size_t>(rank)) == "rank" + std::to_string(rank));
  }
}

TEST_CASE("engine_routing: an abort reaches the engine that has the request") {
  Roles setup;
  Sink a, b;
  setup.Submit("a", &a, 0);
  setup.Submit("b", &b, 0);
  CHECK(setup.NextId(0) == "a~p1");
  CHECK(setup.NextId(0) == "b~p1");
  setup.EndPrefill("a~p1");
  CHECK(setup.client.num_inflight() == 2);
  setup.shard.RunUntil([&] { return !a.engines.empty(); });
  CHECK(setup.NextId(1) == "a");
  setup.client.Abort(std::vector<RequestId>{"a", "b"});
  CHECK(setup.engine(0).Next<wire::AbortRequest>() == wire::AbortRequest{"b~p1"});
  CHECK(setup.engine(1).Next<wire::AbortRequest>() == wire::AbortRequest{"a"});
  CHECK(setup.client.num_inflight() == 0);
}

TEST_CASE("engine_routing: the choices of a prompt share its prefill and go on together") {
  Roles setup;
  Sink sinks[3];
  std::vector<wire::EngineCoreRequest> choices;
  for (int i = 0; i < 3; ++i) choices.push_back(setup.Request(std::to_string(i) + "_x"));
  REQUIRE(setup.client.SubmitChoices(choices, {&sinks[0], &sinks[1], &sinks[2]}).ok());
  const auto prefill = setup.engine(0).Next<wire::EngineCoreRequest>();
  CHECK(prefill.request_id == "0_x~p1");
  CHECK(prefill.sampling_params.n == 1);
  const auto end_prefill = [&] {
    setup.EndPrefill("0_x~p1");
    setup.shard.RunUntil([&] { return !sinks[1].engines.empty(); });
  };
  SECTION("all") {
    end_prefill();
    const auto decode = setup.engine(1).Next<wire::EngineCoreRequest>();
    CHECK(decode.request_id == "0_x");
    CHECK(decode.sampling_params.n == 3);
  }
  SECTION("the first one's client has left") {
    setup.client.Abort("0_x");
    end_prefill();
    const auto decode = setup.engine(1).Next<wire::EngineCoreRequest>();
    CHECK(decode.request_id == "1_x");
    CHECK(decode.sampling_params.n == 1);
    CHECK_FALSE(decode.sampling_params.extra_args.is_nil());
    CHECK(setup.NextId(1) == "2_x");
  }
}

TEST_CASE("engine_routing: without a prefill engine prompts are computed where they are decoded") {
  Roles setup;
  Sink a, b;
  setup.Submit("a", &a, 0);
  setup.Kill(0);
  const auto request = setup.engine(1).Next<wire::EngineCoreRequest>();
  CHECK(request.request_id == "a");
  CHECK(request.sampling_params.extra_args.is_nil());
  CHECK(a.engines == std::vector<int>{1});
  setup.Submit("b", &b, 1);
  CHECK(setup.NextId(1) == "b");
  setup.Start(0);
  setup.Submit("c", &b, 0);
  CHECK(setup.NextId(0) == "c~p1");
}

TEST_CASE("engine_routing: without an engine that decodes, prefill engines run whole requests") {
  Roles setup;
  Sink a, b, c;
  setup.Submit("a", &a, 0);
  CHECK(setup.NextId(0) == "a~p1");
  setup.EndPrefill("a~p1");
  setup.shard.RunUntil([&] { return !a.engines.empty(); });
  CHECK(setup.NextId(1) == "a");
  setup.engine(1).Step({"a"});
  setup.shard.RunUntil([&] { return a.num_calls == 1; });
  setup.Submit("b", &b, 0);
  CHECK(setup.NextId(0) == "b~p1");
  setup.Kill(1);
  const auto resumed = setup.engine(0).Next<wire::EngineCoreRequest>();
  CHECK(resumed.request_id == "a~1");
  CHECK(resumed.own.num_prior_output_tokens == 1);
  CHECK(resumed.sampling_params.extra_args.is_nil());
  setup.EndPrefill("b~p1");
  const auto whole = [&] {
    setup.shard.RunUntil([&] { return !b.engines.empty(); });
    return setup.engine(0).Next<wire::EngineCoreRequest>();
  }();
  CHECK(whole.request_id == "b");
  CHECK(whole.sampling_params.max_tokens == 9);
  CHECK(whole.sampling_params.extra_args.is_nil());  // its own cache has the prompt
  CHECK(setup.engine(0).Next<wire::AbortRequest>() == wire::AbortRequest{"b~p1"});  // its lease
  setup.Submit("c", &c, 0);
  CHECK(setup.NextId(0) == "c");
}

// Of the 100 blocks of 16 tokens that engine 0 has, 50 may be for others.
constexpr size_t kThirtyBlocks = 30 * 16 + 1;

TEST_CASE("engine_routing: a prompt waits until the KV of those before it has been read") {
  Roles setup;
  Sink a, b, c;
  setup.Submit("a", &a, 0, kThirtyBlocks);
  setup.Submit("b", &b, 0, kThirtyBlocks);
  setup.Submit("c", &c, 0);  // it would have room, but b came first
  CHECK(setup.NextId(0) == "a~p1");
  CHECK(setup.client.num_inflight() == 3);
  setup.EndPrefill("a~p1");
  setup.shard.RunUntil([&] { return !a.engines.empty(); });
  CHECK(setup.NextId(1) == "a");
  CHECK(setup.client.DebugString().find("2 prompts wait") != std::string::npos);
  SECTION("its reader has it") {
    setup.engine(1).Step({"a"});
    setup.shard.RunUntil([&] { return a.num_calls == 1; });
  }
  SECTION("its client has left, and the reader knows") {
    setup.client.Abort("a");
    CHECK(setup.engine(1).Next<wire::AbortRequest>() == wire::AbortRequest{"a"});
    CHECK(setup.client.DebugString().find("2 prompts wait") != std::string::npos);
    EngineCoreOutputs end;
    end.engine_index = 1;
    end.finished_requests = {"a"};
    setup.engine(1).endpoint.Send(0, std::move(end));
    setup.shard.RunUntil(
        [&] { return setup.client.DebugString().find("0 prompts wait") != std::string::npos; });
  }
  SECTION("its reader dies") {
    setup.Kill(1);
    CHECK(setup.engine(0).Next<wire::AbortRequest>() == wire::AbortRequest{"a~p1"});
    CHECK(setup.NextId(0) == "a~1");  // the whole request: nobody decodes
  }
  CHECK(setup.NextId(0) == "b~p1");
  CHECK(setup.NextId(0) == "c~p1");
}

TEST_CASE(
    "engine_routing: prompts that wait for a dead engine are computed where they are decoded") {
  Roles setup;
  Sink a, b;
  setup.Submit("a", &a, 0, kThirtyBlocks);
  setup.Submit("b", &b, 0, kThirtyBlocks);
  CHECK(setup.NextId(0) == "a~p1");
  setup.Kill(0);
  CHECK(setup.NextId(1) == "a");
  const auto request = setup.engine(1).Next<wire::EngineCoreRequest>();
  CHECK(request.request_id == "b");
  CHECK(request.sampling_params.extra_args.is_nil());
  CHECK(b.engines == std::vector<int>{1});
}

TEST_CASE("engine_routing: a request that no engine takes waits for one") {
  Roles setup;
  Sink a;
  setup.Submit("a", &a, 0);
  CHECK(setup.NextId(0) == "a~p1");
  setup.Kill(1);
  setup.Kill(0);
  CHECK_FALSE(a.over());
  setup.Start(1);
  CHECK(setup.NextId(1) == "a");
  CHECK(a.engines == std::vector<int>{1});
  setup.engine(1).Step({"a"}, {"a"});
  setup.shard.RunUntil([&] { return a.over(); });
  CHECK(a.finish_reason == FinishReason::kStop);
}

}  // namespace
}  // namespace tandem
