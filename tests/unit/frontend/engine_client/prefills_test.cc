// Requests whose prompt another engine computes first, without sockets: what is sent where, and
// what ends.

#include "frontend/engine_client/prefills.h"

#include <deque>
#include <map>
#include <string>

#include "frontend/engine_client/prefill_request.h"
#include "proto_msgpack/codec.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Words = std::vector<std::string>;

struct Sink final : OutputSink {
  void OnOutput(const wire::EngineCoreOutput& output, double) override {
    calls.push_back(output.finished() ? "finished" : "output");
  }
  void OnError(const Status& status) override { calls.push_back("error " + status.message()); }
  void OnEngineChange(int engine_index) override {
    calls.push_back("engine " + std::to_string(engine_index));
  }
  void OnWaited() override { calls.push_back("waited"); }
  void OnPrefilled(const wire::EngineCoreOutput&, double timestamp) override {
    calls.push_back("prefilled " + std::to_string(static_cast<int>(timestamp)));
    if (during_prefilled) during_prefilled();
  }

  Words calls;
  std::function<void()> during_prefilled;
};

// Engines 0 and 1 compute prompts.
struct Setup {
  Setup() : running(3, 1000), prefills(&running, 1, Calls()) {}
  Prefills::Calls Calls() {
    return {.choose_engine = [this](const wire::EngineCoreRequest&, std::optional<int> failed,
                                    const std::function<bool(int)>& admits) -> StatusOr<int> {
              const int engine = failed ? 1 - *failed : 0;
              if (engine == 1 && !others_live) return UnavailableError("none");
              return admits(engine) ? StatusOr<int>(engine) : ResourceExhaustedError("full");
            },
            .send =
                [this](const wire::EngineCoreRequest& prefill, int engine) {
                  CHECK(running.num_per_engine()[static_cast<size_t>(engine)] > 0);
                  events.push_back(prefill.request_id + "@" + std::to_string(engine));
                },
            .go_on =
                [this](const std::vector<RequestId>& ids, const wire::RawValue& params) {
                  const bool loads = !params.is_nil() && decoding_one_lives;
                  for (const RequestId& id : ids) {
                    events.push_back(id + (loads ? " loads" : " computes"));
                  }
                  return loads ? KvReaders{2, ids} : KvReaders{};
                }};
  }
  void Begin(const std::vector<RequestId>& ids) {
    for (const RequestId& id : ids) {
      wire::EngineCoreRequest request;
      request.request_id = id;
      request.prompt_token_ids = {1, 2, 3};
      running.Add(std::move(request), kNoEngine, /*can_resume=*/true, &sinks[id]);
    }
    CHECK(prefills.Begin(ids, 0) == 0);
  }
  // It is an output of the engine that decodes.
  void Read(const RequestId& id) {
    prefills.OnOutput(id);
    prefills.SendWaiting();
  }
  void Output(const std::string& id, std::optional<wire::FinishReason> reason, bool has_kv = true) {
    wire::EngineCoreOutput output;
    output.request_id = id;
    output.new_token_ids = {9};
    output.finish_reason = reason;
    if (has_kv) output.kv_transfer_params = wire::RawValue{"\x80"};
    running.HandleOutput(output, 7);
  }
  void Error(const std::string& id, const std::string& code) {
    wire::EngineCoreOutput output;
    output.request_id = id;
    output.finish_reason = wire::FinishReason::kError;
    output.error = wire::EngineCoreError{code, "no", false};
    running.HandleOutput(output, 7);
  }
  Words Take() { return std::exchange(events, {}); }

  RunningRequests running;
  std::map<RequestId, Sink> sinks;
  Words events;
  bool others_live = true;
  bool decoding_one_lives = true;
  Prefills prefills;
};

constexpr auto kLength = wire::FinishReason::kLength;

TEST_CASE("prefills: a request goes on where its KV is loaded, and gets no token of the prefill") {
  Setup setup;
  setup.Begin({"a"});
  CHECK(setup.Take() == Words{"a~p1@0"});
  CHECK(setup.running.size() == 1);
  CHECK(setup.running.num_per_engine() == std::vector<int64_t>{1, 0, 0, 0, 0, 0});
  setup.Output("a~p1", std::nullopt);
  CHECK(setup.Take().empty());
  setup.Output("a~p1", kLength);
  CHECK(setup.Take() == Words{"a loads"});
  CHECK(setup.sinks["a"].calls == Words{"prefilled 7"});
  CHECK(setup.running.num_per_engine() == std::vector<int64_t>(6));
  setup.Output("a~p1", kLength);  // it is over
  CHECK(setup.Take().empty());
}

TEST_CASE("prefills: choices share one, and those that ended meanwhile do not go on") {
  Setup setup;
  setup.Begin({"0_x", "1_x", "2_x"});
  CHECK(setup.Take() == Words{"0_x~p1@0"});
  CHECK(setup.running.size() == 3);
  setup.running.Abort("0_x");
  setup.prefills.ForgetEnded();
  CHECK(setup.running.TakeAborts(0).empty());
  setup.sinks["1_x"].during_prefilled = [&] { setup.running.Abort("2_x"); };
  setup.Output("0_x~p1", kLength);
  CHECK(setup.sinks["0_x"].calls.empty());
  CHECK(setup.sinks["2_x"].calls.empty());
  CHECK(setup.Take().front() == "1_x loads");
}

TEST_CASE("prefills: one that nobody waits for is aborted on its engine") {
  Setup setup;
  setup.Begin({"0_x", "1_x"});
  setup.Begin({"b"});
  CHECK(setup.running.AbortNamed({"0_x", "1_x"}) == 2);
  setup.prefills.ForgetEnded();
  CHECK(setup.running.TakeAborts(0) == wire::AbortRequest{"0_x~p1"});
  setup.Take();
  setup.Output("0_x~p1", kLength);
  CHECK(setup.Take().empty());
  setup.running.AbortAll(UnavailableError("end"));
  setup.prefills.ForgetEnded();
  CHECK(setup.running.TakeAborts(0) == wire::AbortRequest{"b~p1"});
  CHECK(setup.running.num_per_engine() == std::vector<int64_t>(6));
  CHECK(setup.sinks["b"].calls == Words{"error end"});
}

TEST_CASE("prefills: one that fails is tried once more, then the prompt is computed elsewhere") {
  Setup setup;
  setup.Begin({"a"});
  setup.Begin({"b"});
  setup.Take();
  SECTION("the engine dies") {
    setup.prefills.OnLost(0, UnavailableError("dead"));
    CHECK(setup.Take() == Words{"a~p2@1", "b~p2@1"});
    CHECK(setup.sinks["a"].calls == Words{"engine 1", "waited"});
    setup.Output("a~p1", kLength);  // of the dead one
    CHECK(setup.Take().empty());
    setup.prefills.OnLost(1, UnavailableError("dead"));
    CHECK(setup.Take() == Words{"a computes", "b computes"});
  }
  SECTION("it fails on one") {
    setup.Error("b~p1", "internal_error");
    CHECK(setup.Take() == Words{"b~p2@1"});
    setup.Output("b~p2", kLength);
    CHECK(setup.Take() == Words{"b loads"});
  }
  SECTION("it aborts one, or drops it") {
    setup.Output("a~p1", wire::FinishReason::kAbort);
    setup.running.HandleFinished("b~p1");
    CHECK(setup.Take() == Words{"a~p2@1", "b~p2@1"});
  }
  SECTION("what one refuses, all refuse") {
    setup.Error("a~p1", "validation_error");
    CHECK(setup.Take() == Words{"a computes"});
  }
  SECTION("there is no other") {
    setup.others_live = false;
    setup.prefills.OnLost(0, UnavailableError("dead"));
    CHECK(setup.Take() == Words{"a computes", "b computes"});
    CHECK(setup.running.size() == 2);
    CHECK(setup.sinks["a"].calls.empty());
  }
}

TEST_CASE("prefills: without KV the prompt is computed where it is decoded") {
  Setup setup;
  setup.Begin({"a"});
  setup.Take();
  setup.Output("a~p1", kLength, /*has_kv=*/false);
  CHECK(setup.Take() == Words{"a computes"});
  CHECK(setup.sinks["a"].calls == Words{"prefilled 7"});
}

// Of prompts with two blocks for others; there is room for two such prompts.
struct SmallSetup : Setup {
  SmallSetup() {
    prefills.OnReady(0, 9, 1);
    for (const char* id : {"a", "b", "c", "d"}) Begin({id});
    CHECK(Take() == Words{"a~p1@0", "b~p1@0"});
    CHECK(prefills.num_waiting() == 2);
  }
};

TEST_CASE("prefills: prompts wait in order of arrival until the KV of others has been read") {
  SmallSetup setup;
  setup.Output("b~p1", kLength);
  setup.Output("a~p1", kLength);
  setup.prefills.SendWaiting();
  CHECK(setup.Take() == Words{"b loads", "a loads"});
  setup.Read("b");
  CHECK(setup.Take() == Words{"c~p1@0"});
  CHECK(setup.sinks["c"].calls == Words{"waited"});
  setup.Read("b");  // its second output
  CHECK(setup.Take().empty());
  setup.Output("c~p1", kLength);
  setup.Read("a");
  CHECK(setup.Take() == Words{"c loads", "d~p1@0"});
  CHECK(setup.prefills.num_waiting() == 0);
}

TEST_CASE("prefills: what ends without a reader makes room") {
  SmallSetup setup;
  SECTION("a prefill that nobody waits for") {
    setup.running.Abort("a");
    setup.prefills.ForgetEnded();
    setup.prefills.SendWaiting();
    CHECK(setup.Take() == Words{"c~p1@0"});
  }
  SECTION("one that fails, and has to wait for another engine") {
    setup.others_live = false;
    setup.Error("a~p1", "internal_error");
    CHECK(setup.Take() == Words{"a computes"});
    setup.prefills.SendWaiting();
    CHECK(setup.Take() == Words{"c~p1@0"});
  }
  SECTION("one whose KV nobody reads is given up") {
    setup.decoding_one_lives = false;
    setup.Output("a~p1", kLength);
    setup.prefills.SendWaiting();
    CHECK(setup.Take() == Words{"a computes", "c~p1@0"});
    CHECK(setup.running.TakeAborts(0) == wire::AbortRequest{"a~p1"});
  }
  SECTION("one whose reader dies is given up") {
    setup.Output("a~p1", kLength);
    setup.prefills.OnLost(2, UnavailableError("dead"));
    setup.prefills.SendWaiting();
    CHECK(setup.Take() == Words{"a loads", "c~p1@0"});
    CHECK(setup.running.TakeAborts(0) == wire::AbortRequest{"a~p1"});
  }
}

TEST_CASE("prefills: one that ended while it waited is not sent, and holds up no other") {
  SmallSetup setup;
  setup.running.Abort("c");
  setup.prefills.ForgetEnded();
  setup.Output("a~p1", kLength);
  setup.Read("a");
  CHECK(setup.Take() == Words{"a loads", "d~p1@0"});
}

TEST_CASE("prefills: one that failed goes to another engine before those that wait") {
  SmallSetup setup;
  for (const char* id : {"a~p1", "b~p1"}) setup.Output(id, wire::FinishReason::kAbort);
  CHECK(setup.Take() == Words{"a~p2@1", "c~p1@0", "b~p2@1", "d~p1@0"});
  CHECK(setup.sinks["a"].calls == Words{"engine 1", "waited"});
  CHECK(setup.sinks["c"].calls == Words{"waited"});
}

wire::EngineCoreRequest Request() {
  wire::EngineCoreRequest request;
  request.request_id = "r";
  request.prompt_token_ids = {1, 2, 3};
  request.cache_salt = "salt";
  request.lora_request.packed = "\x90";
  request.sampling_params.max_tokens = 50;
  request.sampling_params.min_tokens = 10;
  request.sampling_params.stop_token_ids = {4};
  request.sampling_params.eos_token_id = 5;
  request.sampling_params.structured_outputs.emplace().json_object = true;
  return request;
}

const std::string kParams = wire::PackedString("kv_transfer_params").packed;
const std::string kOther = wire::PackedString("other").packed;

TEST_CASE("prefill request: the prompt as it is, one token, no constraints") {
  const wire::EngineCoreRequest request = Request();
  const wire::EngineCoreRequest prefill = PrefillOf(request, "p");
  CHECK(prefill.request_id == "p");
  CHECK(prefill.prompt_token_ids == request.prompt_token_ids);
  CHECK(prefill.cache_salt == request.cache_salt);
  CHECK(prefill.lora_request == request.lora_request);
  wire::SamplingParams expected;
  expected.temperature = 0;
  expected.ignore_eos = true;
  expected.max_tokens = 1;
  expected.detokenize = false;
  expected.output_kind = wire::OutputKind::kFinalOnly;
  expected.extra_args.packed = "\x81" + kParams + "\x82" +
                               wire::PackedString("do_remote_decode").packed + "\xc3" +
                               wire::PackedString("do_remote_prefill").packed + "\xc2";
  CHECK(prefill.sampling_params == expected);
}

TEST_CASE("prefill request: which prompts stay with the engine that decodes") {
  CHECK(CanPrefillElsewhere(Request()));
  wire::EngineCoreRequest request = Request();
  SECTION("pools") { request.pooling_params.packed = "\x90"; }
  SECTION("embeddings") { request.prompt_embeds.packed = "\x90"; }
  SECTION("shows its prompt") { request.sampling_params.prompt_logprobs = 1; }
  SECTION("reads no prefix") { request.sampling_params.skip_reading_prefix_cache = true; }
  SECTION("the client has chosen") {
    request.sampling_params.extra_args.packed = "\x82" + kOther + "\x01" + kParams + "\x80";
  }
  CHECK_FALSE(CanPrefillElsewhere(request));
}

TEST_CASE("prefill request: kv_transfer_params are replaced and other arguments stay") {
  const wire::RawValue params = {"\x81\x01\x02"};
  CHECK(WithKvTransferParams({}, params).packed == "\x81" + kParams + params.packed);
  CHECK(WithKvTransferParams({"\x82" + kParams + "\xc0" + kOther + "\x07"}, params).packed ==
        "\x82" + kOther + "\x07" + kParams + params.packed);
  CHECK(WithKvTransferParams({"no map"}, params).packed == "\x81" + kParams + params.packed);
  std::string many = "\x8f";
  for (int i = 0; i < 15; ++i) many += wire::PackedString(std::to_string(i)).packed + "\xc0";
  const std::string sixteen = WithKvTransferParams({many}, params).packed;
  CHECK(sixteen.substr(0, 4) == std::string("\xde\x00\x10\xa1", 4));
}

}  // namespace
}  // namespace tandem
