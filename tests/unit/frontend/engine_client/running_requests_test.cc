#include "frontend/engine_client/running_requests.h"

#include <functional>
#include <string>
#include <vector>

#include "proto_msgpack/engine_end.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Recorder final : OutputSink {
  void OnOutput(const wire::EngineCoreOutput& output, double timestamp) override {
    calls.push_back("output " + std::to_string(output.new_token_ids.size()) +
                    (output.finished() ? " finished " : " ") + std::to_string(int(timestamp)));
    if (during_call) during_call();
  }
  void OnError(const Status& status) override {
    calls.push_back("error " + status.message());
    code = status.code();
    if (during_call) during_call();
  }
  void OnNansInLogits() override {
    calls.push_back("nans");
    if (during_call) during_call();
  }

  std::vector<std::string> calls;
  StatusCode code = StatusCode::kOk;
  std::function<void()> during_call;
};

using Calls = std::vector<std::string>;

struct Setup {
  explicit Setup(int64_t max_kept_bytes = 1000) : running(2, max_kept_bytes) {}
  void Add(const std::string& id, int engine, Recorder* sink,
           std::optional<std::string> external_id = {}, bool can_resume = true) {
    wire::EngineCoreRequest request;
    request.request_id = id;
    request.prompt_token_ids = {1, 2, 3};
    request.external_req_id = std::move(external_id);
    running.Add(std::move(request), engine, can_resume, sink);
  }
  wire::EngineCoreOutput Output(const std::string& id, std::vector<TokenId> tokens,
                                std::optional<wire::FinishReason> reason = {}) {
    wire::EngineCoreOutput output;
    output.request_id = id;
    output.new_token_ids.assign(tokens.begin(), tokens.end());
    output.finish_reason = reason;
    return output;
  }
  RunningRequest& Find(const std::string& id) { return *running.Find(id); }
  RunningRequests running;
};

TEST_CASE("running_requests: outputs reach their sink until the finish") {
  Setup setup;
  Recorder a;
  setup.Add("a", 1, &a);
  CHECK(setup.running.num_per_engine() == std::vector<int64_t>{0, 1, 0, 0});
  setup.running.HandleOutput(setup.Output("a", {7, 8}), 1);
  CHECK(setup.running.DebugString() == "  a engine 1 prompt 3 emitted 2\n");
  setup.running.HandleOutput(setup.Output("unknown", {7}), 1);
  setup.running.HandleOutput(setup.Output("a", {9}, wire::FinishReason::kStop), 2);
  setup.running.HandleOutput(setup.Output("a", {9}), 3);
  setup.running.HandleFinished("a");
  CHECK(a.calls == Calls{"output 2 1", "output 1 finished 2"});
  CHECK(setup.running.size() == 0);
  CHECK(setup.running.num_per_engine() == std::vector<int64_t>{0, 0, 0, 0});
}

TEST_CASE("running_requests: an engine's error ends the request with its kind of Status") {
  const auto end = [](const std::function<void(wire::EngineCoreOutput*)>& fill) {
    Setup setup;
    Recorder a;
    setup.Add("a", 0, &a);
    wire::EngineCoreOutput output = setup.Output("a", {});
    fill(&output);
    setup.running.HandleOutput(output, 1);
    CHECK(setup.running.size() == 0);
    CHECK(a.calls.size() == 1);
    return a.code;
  };
  using Output = wire::EngineCoreOutput;
  using Error = wire::EngineCoreError;
  CHECK(end([](Output* o) {
          o->error = Error{"validation_error", "no", false};
        }) == StatusCode::kInvalidArgument);
  CHECK(end([](Output* o) {
          o->error = Error{"engine_paused", "later", true};
        }) == StatusCode::kUnavailable);
  CHECK(end([](Output* o) { o->error = Error{"boom", "broken", false}; }) == StatusCode::kInternal);
  CHECK(end([](Output* o) { o->finish_reason = wire::FinishReason::kError; }) ==
        StatusCode::kInternal);
}

TEST_CASE("running_requests: finished without an output is an error, so no stream hangs") {
  Setup setup;
  Recorder a;
  setup.Add("a", 0, &a);
  setup.running.HandleFinished("a");
  CHECK(a.calls == Calls{"error the engine dropped request a"});
  CHECK(setup.running.size() == 0);
}

TEST_CASE("running_requests: a request that leaves its engine takes its outputs along") {
  Setup setup;
  Recorder a;
  setup.Add("a~x", 0, &a);
  setup.running.HandleOutput(setup.Output("a~x", {7, 8}), 1);
  CHECK(setup.running.kept_bytes() == 5 * sizeof(TokenId));
  RunningRequest& running = setup.Find("a~x");
  setup.running.LeaveEngine(&running);
  CHECK(running.request.request_id == "a~x~1");
  CHECK(running.request.prompt_token_ids == std::vector<TokenId>{1, 2, 3, 7, 8});
  CHECK(running.request.own.num_prior_output_tokens == 2);
  CHECK(setup.running.DebugString() == "  a~x engine none prompt 3 emitted 2\n");
  CHECK(setup.running.num_per_engine() == std::vector<int64_t>{0, 0, 0, 0});

  // What the first engine had sent arrives late.
  setup.running.HandleOutput(setup.Output("a~x", {9}), 2);
  setup.running.HandleFinished("a~x");
  setup.running.HandleFinished("a");
  setup.running.JoinEngine(&running, 1);
  setup.running.HandleOutput(setup.Output("a~x", {9}), 2);
  setup.running.HandleOutput(setup.Output("a~x~1", {10}), 3);
  CHECK(a.calls == Calls{"output 2 1", "output 1 3"});

  setup.running.LeaveEngine(&running);
  CHECK(running.request.request_id == "a~x~2");
  CHECK(running.request.own.num_prior_output_tokens == 3);
  setup.running.HandleOutput(setup.Output("a~x~1", {11}), 4);
  setup.running.JoinEngine(&running, 0);
  CHECK(setup.running.AbortNamed({"a~x"}) == 1);  // its own id is its name
  CHECK(setup.running.TakeAborts(0) == wire::AbortRequest{"a~x~2"});
  CHECK(setup.running.TakeAborts(1).empty());
  CHECK(setup.running.kept_bytes() == 0);
}

TEST_CASE("running_requests: without an engine a request can be aborted and fail") {
  Setup setup;
  Recorder a, b;
  setup.Add("a", 0, &a);
  setup.Add("b", 0, &b);
  CHECK(setup.running.RequestsOf(0) == std::vector<RequestId>{"a", "b"});
  setup.running.LeaveEngine(&setup.Find("a"));
  setup.running.LeaveEngine(&setup.Find("b"));
  CHECK(setup.running.RequestsOf(0).empty());
  setup.running.Abort("a");
  setup.running.Fail("b", UnavailableError("gone"));
  setup.running.Fail("b", UnavailableError("gone"));
  CHECK(a.calls.empty());
  CHECK(b.calls == Calls{"error gone"});
  CHECK(setup.running.TakeAborts(0).empty());
  CHECK(setup.running.size() == 0);
}

TEST_CASE("running_requests: one that is taken back is aborted on its engine") {
  Setup setup;
  Recorder a;
  setup.Add("a", 1, &a);
  setup.running.TakeBack(&setup.Find("a"));
  CHECK(setup.running.TakeAborts(1) == wire::AbortRequest{"a"});
  CHECK(setup.Find("a").request.request_id == "a~1");
  CHECK(a.calls.empty());
}

TEST_CASE("running_requests: tokens are kept up to a limit, and only where they can be used") {
  Setup setup(7 * sizeof(TokenId));
  Recorder a, b, c;
  setup.Add("foreign", 0, &a, {}, /*can_resume=*/false);
  CHECK(setup.running.kept_bytes() == 0);
  setup.Add("a", 0, &a);
  setup.Add("b", 0, &b);
  setup.Add("c", 0, &c);  // there is no room for it
  CHECK_FALSE(setup.Find("foreign").is_kept);
  CHECK(setup.Find("b").is_kept);
  CHECK_FALSE(setup.Find("c").is_kept);
  CHECK(setup.running.kept_bytes() == 6 * sizeof(TokenId));
  setup.running.HandleOutput(setup.Output("c", {7, 8}), 1);
  setup.running.HandleOutput(setup.Output("a", {7}), 1);
  CHECK(setup.Find("a").is_kept);
  setup.running.HandleOutput(setup.Output("b", {7}), 1);  // its outputs outgrow the room
  CHECK_FALSE(setup.Find("b").is_kept);
  CHECK(setup.running.kept_bytes() == 4 * sizeof(TokenId));
  setup.running.HandleOutput(setup.Output("b", {7}), 2);
  CHECK(b.calls.size() == 2);
  for (const char* id : {"foreign", "a", "b", "c"}) setup.running.Abort(id);
  CHECK(setup.running.kept_bytes() == 0);
}

TEST_CASE("running_requests: aborts are silent and collected for each engine") {
  Setup setup;
  Recorder a, b, c;
  setup.Add("a", 0, &a);
  setup.Add("b", 1, &b);
  setup.Add("c", 0, &c);
  for (const char* id : {"a", "b", "c", "a", "unknown"}) setup.running.Abort(id);
  CHECK(setup.running.TakeAborts(0) == wire::AbortRequest{"a", "c"});
  CHECK(setup.running.TakeAborts(0).empty());
  CHECK(setup.running.TakeAborts(1) == wire::AbortRequest{"b"});
  CHECK((a.calls.empty() && b.calls.empty() && c.calls.empty()));
}

TEST_CASE("running_requests: names are ids, external ids and response ids") {
  Setup setup;
  Recorder a, b, c, d;
  setup.Add("a", 0, &a, "chatcmpl-1-2");
  setup.Add("b", 0, &b, "cmpl-x-0");
  setup.Add("c", 0, &c, "cmpl-x-1");
  setup.Add("d", 0, &d);
  CHECK(setup.running.AbortNamed({"chatcmpl-1", "cmpl", "unknown"}) == 0);
  CHECK(setup.running.AbortNamed({"cmpl-x-1"}) == 1);
  CHECK(c.calls == Calls{"output 0 finished 0"});
  CHECK(setup.running.AbortNamed({"cmpl-x"}) == 1);
  CHECK(setup.running.AbortNamed({"chatcmpl-1-2"}) == 1);
  CHECK(setup.running.TakeAborts(0) == wire::AbortRequest{"c", "b", "a"});
  CHECK(setup.running.AbortNamed({}) == 1);
  CHECK(d.calls.size() == 1);
}

TEST_CASE("running_requests: sinks may abort others and take their own id again") {
  Setup setup;
  Recorder a, b, again;
  setup.Add("a", 0, &a);
  setup.Add("b", 0, &b);
  a.during_call = [&] { setup.running.Abort("b"); };
  b.during_call = [&] { setup.running.Abort("a"); };
  SECTION("when all are aborted") {
    setup.running.AbortAll(UnavailableError("bye"));
    CHECK(a.calls.size() + b.calls.size() == 1);
    CHECK(setup.running.TakeAborts(0).size() == 2);
  }
  SECTION("when one fails") {
    setup.running.Fail("a", UnavailableError("gone"));
    CHECK(setup.running.size() == 0);
  }
  SECTION("when NaNs are reported") {
    a.during_call = [&] { setup.running.Abort("a"); };
    wire::EngineCoreOutput output = setup.Output("a", {1});
    output.num_nans_in_logits = 1;
    setup.running.HandleOutput(output, 1);
    CHECK(a.calls == Calls{"nans"});
    CHECK(setup.running.size() == 1);
  }
  SECTION("in the last call") {
    a.during_call = [&] { setup.Add("a", 1, &again); };
    setup.running.HandleOutput(setup.Output("a", {1}, wire::FinishReason::kStop), 1);
    CHECK(setup.running.num_per_engine() == std::vector<int64_t>{1, 1, 0, 0});
    setup.running.HandleOutput(setup.Output("a", {1}), 2);
    CHECK(again.calls == Calls{"output 1 2"});
  }
}

TEST_CASE("running_requests: what an engine that ends has aborted goes on after its loss") {
  Setup setup;
  Recorder kept, not_kept;
  setup.Add("kept", 1, &kept);
  setup.Add("not kept", 1, &not_kept, {}, /*can_resume=*/false);
  setup.running.HandleOutput(setup.Output("kept", {7}), 1);
  for (const char* id : {"kept", "not kept"}) {
    wire::EngineCoreOutput end = setup.Output(id, {}, wire::FinishReason::kAbort);
    end.stop_reason = std::string(wire::kEngineEnds);
    setup.running.HandleOutput(end, 2);
    setup.running.HandleFinished(id);
  }
  CHECK(kept.calls == Calls{"output 1 1"});
  CHECK(not_kept.calls == Calls{"output 0 finished 2"});
  CHECK(setup.running.RequestsOf(1) == std::vector<RequestId>{"kept"});
  setup.running.LeaveEngine(&setup.Find("kept"));
  setup.running.JoinEngine(&setup.Find("kept"), 0);
  CHECK(setup.Find("kept").request.prompt_token_ids.size() == 4);
}

}  // namespace
}  // namespace tandem
