// Whole lives of requests whose engines die, without sockets: what is sent where, and what ends.

#include "frontend/engine_client/resumption.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto_msgpack/lora_request.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Sink final : OutputSink {
  void OnOutput(const wire::EngineCoreOutput& output, double) override {
    num_tokens += output.new_token_ids.size();
    finished = output.finished();
  }
  void OnError(const Status& status) override {
    error = status;
    if (during_error) during_error();
  }
  void OnEngineChange(int engine_index) override { engines.push_back(engine_index); }

  size_t num_tokens = 0;
  bool finished = false;
  Status error;
  std::vector<int> engines;
  std::function<void()> during_error;
};

using Sent = std::vector<std::string>;  // "id@engine"

struct Setup {
  explicit Setup(ResumeLimits limits = {}, int num_engines = 1)
      : health(num_engines, {}),
        running(num_engines, limits.max_kept_bytes),
        resumption(limits, &running, &health, Calls()) {
    for (int i = 0; i < num_engines; ++i) Ready(i);
  }
  Resumption::Calls Calls() {
    return {.choose_engine = [this](std::optional<int> rank) { return Choose(rank); },
            .send =
                [this](const RunningRequest& request, int engine) {
                  sent.push_back(request.request.request_id + "@" + std::to_string(engine));
                },
            .report = [this](ResumeOutcome outcome) { ++outcomes[outcome]; },
            .reserve =
                [this](int engine) {
                  reserved.push_back(engine);
                  return !shares_engines;
                },
            .release = [this](int engine, bool) { released.push_back(engine); },
            .has_other_files = [this](const auto& lora) { return lora.name == changed; }};
  }
  StatusOr<int> Choose(std::optional<int> rank) {
    Status why = UnavailableError("none");
    for (int i = 0; i < running.num_engines(); ++i) {
      if (rank && *rank != i) continue;
      why = health.CheckTakesRequests(i);
      if (why.ok()) return i;
    }
    return why;
  }
  void Ready(int engine) {
    wire::EngineCoreReadyResponse response;
    response.tandem_version = "1";
    health.OnReady(engine, response);
    resumption.SendWaiting(now);
  }
  void Die(int engine = 0) {
    const Status why = UnavailableError("engine " + std::to_string(engine) + " is lost");
    health.OnLost(engine, why);
    (void)running.TakeAborts(engine);
    resumption.OnLost(engine, why, now);
    resumption.SendWaiting(now);
  }
  void DieAndComeBack(int engine = 0) {
    Die(engine);
    Ready(engine);
  }
  Sink& Add(const std::string& id, int engine = 0, std::optional<int> rank = {}) {
    wire::EngineCoreRequest request;
    request.request_id = id;
    request.prompt_token_ids = {1, 2, 3};
    request.data_parallel_rank = rank;
    sinks[id] = std::make_unique<Sink>();
    running.Add(std::move(request), engine, /*can_resume=*/true, sinks[id].get());
    running.Find(id)->deaths.OnSent(/*alone=*/false);
    return *sinks[id];
  }
  // Another engine has the index now.
  int64_t TakeOver(int64_t max_model_len = 4096, int engine = 0) {
    running.MakePredecessor(engine);
    const int64_t num_moved = resumption.OnTakenOver(engine, max_model_len, now);
    resumption.SendWaiting(now);
    return num_moved;
  }
  // One output of each of these, by their own ids.
  void Step(const std::vector<std::string>& ids, bool finishes = false) {
    for (const std::string& id : ids) {
      wire::EngineCoreOutput output;
      output.request_id = running.Find(id)->request.request_id;
      output.new_token_ids = {7};
      if (finishes) output.finish_reason = wire::FinishReason::kStop;
      running.HandleOutput(output, 0);
    }
    resumption.SendWaiting(now);
  }
  Sent TakeSent() { return std::exchange(sent, {}); }

  double now = 100;
  EngineHealth health;
  RunningRequests running;
  std::map<std::string, std::unique_ptr<Sink>> sinks;
  Sent sent;
  std::map<ResumeOutcome, int> outcomes;
  bool shares_engines = false;  // with other shards
  std::vector<int> reserved, released;
  std::string changed;  // the adapter that has other files
  Resumption resumption;
};

using Outcomes = std::map<ResumeOutcome, int>;

TEST_CASE("resumption: requests wait in order of arrival for the engine to come back") {
  Setup setup;
  const Sink& a = setup.Add("a");
  setup.Add("b");
  setup.Add("c");
  setup.Step({"b"});
  setup.Die();
  CHECK(setup.sent.empty());
  CHECK(setup.resumption.next_deadline() == 160);
  CHECK_FALSE(setup.resumption.idle());
  setup.running.Abort("c");
  setup.Ready(0);
  CHECK(setup.TakeSent() == Sent{"a~1@0", "b~1@0"});
  CHECK(setup.resumption.idle());
  CHECK_FALSE(setup.resumption.next_deadline().has_value());
  CHECK(a.engines == std::vector<int>{0});
  CHECK(setup.running.num_per_engine() == std::vector<int64_t>{2, 0});
  CHECK(setup.outcomes == Outcomes{{ResumeOutcome::kResumed, 2}, {ResumeOutcome::kAborted, 1}});
}

TEST_CASE(
    "resumption: another engine goes on at once, but not with what is bound to the dead one") {
  Setup setup({}, 2);
  setup.Add("a", 1);
  setup.Add("pinned", 1, /*rank=*/1);
  setup.Add("elsewhere", 0);
  setup.Die(1);
  CHECK(setup.TakeSent() == Sent{"a~1@0"});
  setup.Ready(1);
  CHECK(setup.TakeSent() == Sent{"pinned~1@1"});
  CHECK(setup.sinks["elsewhere"]->engines.empty());
}

TEST_CASE("resumption: waiting has an end") {
  Setup setup({.timeout_s = 5});
  const Sink& a = setup.Add("a");
  const Sink& b = setup.Add("b");
  setup.Die();
  setup.now = 104;
  setup.resumption.Expire(setup.now);
  CHECK(a.error.ok());
  setup.sinks["a"]->during_error = [&] { setup.running.Abort("b"); };
  setup.now = 105;
  setup.resumption.Expire(setup.now);
  CHECK(a.error.code() == StatusCode::kUnavailable);
  CHECK(a.error.message() == "engine 0 is lost; no engine has come back within 5 s");
  CHECK(b.error.ok());  // the other's last call aborted it
  CHECK(setup.resumption.idle());
  CHECK(setup.outcomes[ResumeOutcome::kTimeout] == 1);
}

TEST_CASE("resumption: a request survives as many deaths as the limit allows") {
  Setup setup({.max_restarts = 1});
  const Sink& a = setup.Add("a");
  setup.Step({"a"});
  setup.DieAndComeBack();
  setup.Step({"a"});
  CHECK(a.error.ok());
  CHECK(a.num_tokens == 2);
  setup.Die();
  CHECK(a.error.code() == StatusCode::kUnavailable);
  CHECK(a.error.message() == "engine 0 is lost; a request survives 1 such ends");
  CHECK(setup.outcomes ==
        Outcomes{{ResumeOutcome::kResumed, 1}, {ResumeOutcome::kTooManyRestarts, 1}});
}

TEST_CASE("resumption: requests that were not kept end with their engine") {
  Setup setup({.max_kept_bytes = 3 * sizeof(TokenId)});
  setup.Add("kept");
  const Sink& other = setup.Add("other");
  setup.Die();
  CHECK(other.error.message() == "engine 0 is lost");
  CHECK(setup.outcomes == Outcomes{{ResumeOutcome::kNotKept, 1}});
}

TEST_CASE("resumption: the request that ends its engine is found, and the others go on") {
  Setup setup({.max_restarts = 1000});
  setup.Add("a");
  const Sink& bad = setup.Add("bad");
  setup.Add("c");
  setup.Step({"a", "bad", "c"});
  setup.DieAndComeBack();
  CHECK(setup.TakeSent() == Sent{"a~1@0", "bad~1@0", "c~1@0"});
  setup.Step({"a"});  // so it is not this one
  setup.Die();
  setup.Ready(0);
  // Each suspect alone, until its first output; the one that passed is taken back.
  CHECK(setup.TakeSent() == Sent{"bad~2@0"});
  CHECK_FALSE(setup.health.CheckTakesRequests(0).ok());
  setup.Die();
  CHECK(bad.error.code() == StatusCode::kInternal);
  CHECK(setup.sent.empty());
  setup.Ready(0);
  CHECK(setup.TakeSent() == Sent{"c~2@0"});
  setup.Step({"c"});
  CHECK(setup.TakeSent() == Sent{"a~2@0"});
  CHECK(setup.health.CheckTakesRequests(0).ok());
  CHECK(setup.outcomes ==
        Outcomes{{ResumeOutcome::kResumed, 3 + 3}, {ResumeOutcome::kEndedEngine, 1}});
  setup.Step({"a", "c"}, /*finishes=*/true);
  CHECK((setup.sinks["a"]->finished && setup.sinks["c"]->finished));
}

TEST_CASE("resumption: one that passed makes room for the next suspect") {
  Setup setup({.max_restarts = 1000});
  for (const char* id : {"a", "b", "c"}) setup.Add(id);
  setup.DieAndComeBack();
  setup.DieAndComeBack();
  setup.TakeSent();
  setup.now = 150;
  setup.Step({"a"});
  CHECK(setup.running.TakeAborts(0) == wire::AbortRequest{"a~2"});
  CHECK(setup.TakeSent() == Sent{"b~2@0"});
  CHECK(setup.resumption.next_deadline() == 210);  // each probation renews it
  setup.running.Abort("b");
  setup.resumption.SendWaiting(setup.now);
  CHECK(setup.TakeSent() == Sent{"c~2@0"});
  setup.Step({"c"});
  CHECK(setup.running.TakeAborts(0) == wire::AbortRequest{"b~2"});
  CHECK(setup.TakeSent() == Sent{"a~3@0"});
  CHECK(setup.running.num_per_engine() == std::vector<int64_t>{2, 0});
  CHECK(setup.outcomes == Outcomes{{ResumeOutcome::kResumed, 3 + 3}});
}

TEST_CASE("resumption: the last restart of a request is alone until it has come further") {
  Setup setup({.max_restarts = 2});
  const Sink& slow_killer = setup.Add("slow killer");
  const Sink& other = setup.Add("other");
  const std::vector<std::string> both = {"slow killer", "other"};
  for (int death = 0; death < 2; ++death) {
    for (int i = 0; i < 3; ++i) setup.Step(both);
    setup.DieAndComeBack();
  }
  CHECK(setup.TakeSent() == Sent{"slow killer~1@0", "other~1@0", "slow killer~2@0"});
  for (int i = 0; i < 3; ++i) setup.Step({"slow killer"});
  CHECK(setup.sent.empty());
  setup.DieAndComeBack();
  CHECK(slow_killer.error.code() == StatusCode::kInternal);
  CHECK(setup.TakeSent() == Sent{"other~2@0"});
  for (int i = 0; i < 3 + 8; ++i) setup.Step({"other"});
  CHECK_FALSE(setup.health.CheckTakesRequests(0).ok());
  setup.Step({"other"});
  CHECK(setup.health.CheckTakesRequests(0).ok());
  CHECK(other.error.ok());
}

TEST_CASE("resumption: outputs that an engine's death took along clear nobody of suspicion") {
  Setup setup({.max_restarts = 2});
  const Sink& bad = setup.Add("bad");
  const Sink& other = setup.Add("other");
  for (int death = 0; death < 2; ++death) setup.DieAndComeBack();  // with some on the way
  setup.TakeSent();
  for (int i = 0; i < 8; ++i) setup.Step({"bad"});
  CHECK(setup.sent.empty());
  setup.DieAndComeBack();
  CHECK(bad.error.code() == StatusCode::kInternal);
  CHECK(other.error.ok());
  CHECK(setup.TakeSent() == Sent{"other~2@0"});
}

TEST_CASE("resumption: a suspect waits for an engine with nothing else, the others do not") {
  Setup setup({.max_restarts = 1000}, 2);
  setup.Add("busy", 0);
  setup.Add("a", 1, /*rank=*/1);
  setup.Add("b", 1);
  setup.Die(1);
  setup.Ready(1);
  CHECK(setup.TakeSent() == Sent{"b~1@0", "a~1@1"});
  setup.Die(1);
  setup.Add("new", 0);
  CHECK(setup.sent.empty());
  setup.Ready(1);
  CHECK(setup.TakeSent() == Sent{"a~2@1"});
  setup.Step({"a"});
  CHECK(setup.health.CheckTakesRequests(1).ok());
}

TEST_CASE("resumption: a suspect is sent once the requests of other shards have left the engine") {
  Setup setup({.max_restarts = 1000});
  setup.shares_engines = true;
  setup.Add("a");
  setup.Add("b");
  setup.DieAndComeBack();
  setup.DieAndComeBack();
  CHECK(setup.TakeSent() == Sent{"a~1@0", "b~1@0"});
  CHECK(setup.reserved == std::vector<int>{0});
  CHECK_FALSE(setup.health.CheckTakesRequests(0).ok());
  // Another shard's turn comes first.
  setup.resumption.Leave(0, setup.now);
  setup.resumption.ComeBack(0, /*has_ended=*/false);
  setup.resumption.SendWaiting(setup.now);
  CHECK(setup.sent.empty());
  setup.resumption.OnReserved(setup.now);
  CHECK(setup.TakeSent() == Sent{"a~2@0"});
  CHECK(setup.released.empty());
  setup.Step({"a"});
  CHECK(setup.released == std::vector<int>{0});
  CHECK(setup.reserved == std::vector<int>{0, 0});
  // It dies before its turn: another turn is asked for when it is back.
  setup.Die();
  setup.resumption.OnReserved(setup.now);
  CHECK(setup.TakeSent().empty());
  CHECK(setup.released == std::vector<int>{0, 0});
  setup.Ready(0);
  CHECK(setup.reserved == std::vector<int>{0, 0, 0});
  setup.running.Abort("a");
  setup.running.Abort("b");
  setup.resumption.OnReserved(setup.now);
  CHECK(setup.TakeSent().empty());
  CHECK(setup.released == std::vector<int>{0, 0, 0});
  CHECK(setup.health.CheckTakesRequests(0).ok());
}

TEST_CASE("resumption: requests leave an engine for another shard's suspect, which is no death") {
  Setup setup({.max_restarts = 0});
  setup.Add("a");
  setup.Step({"a"});
  setup.resumption.Leave(0, setup.now);
  CHECK(setup.running.TakeAborts(0) == wire::AbortRequest{"a"});
  setup.resumption.SendWaiting(setup.now);
  CHECK(setup.sent.empty());
  CHECK_FALSE(setup.health.CheckTakesRequests(0).ok());
  // That engine may die and come back.
  setup.DieAndComeBack();
  CHECK(setup.sent.empty());
  setup.resumption.ComeBack(0, /*has_ended=*/false);
  setup.resumption.SendWaiting(setup.now);
  CHECK(setup.TakeSent() == Sent{"a~1@0"});
  setup.Step({"a"}, /*finishes=*/true);
  CHECK(setup.sinks["a"]->finished);
  CHECK(setup.outcomes.empty());
}

TEST_CASE("resumption: an engine of another program gets nothing of a dead one") {
  Setup setup;
  setup.Add("a");
  setup.Die();
  setup.health.OnReady(0, {});
  setup.resumption.SendWaiting(setup.now);
  CHECK(setup.sent.empty());
  setup.now = 160;
  setup.resumption.Expire(setup.now);
  CHECK(setup.sinks["a"]->error.code() == StatusCode::kUnavailable);
}

TEST_CASE("resumption: sinks may abort others while their engine's death is handled") {
  Setup setup({.max_restarts = 0});
  setup.Add("a").during_error = [&] { setup.running.Abort("b"); };
  const Sink& b = setup.Add("b");
  setup.Die();
  CHECK_FALSE(setup.sinks["a"]->error.ok());
  CHECK(b.error.ok());
  CHECK(setup.running.size() == 0);
}

wire::RawValue Lora(const std::string& name, const std::string& path) {
  return wire::Packed(wire::LoraRequest{.name = name, .id = 1, .path = path});
}

TEST_CASE("resumption: no output goes on with other weights of its adapter") {
  Setup setup;
  const Sink& begun = setup.Add("begun");
  const Sink& not_begun = setup.Add("not begun");
  const Sink& other = setup.Add("other");
  const Sink& later = setup.Add("later");
  for (const char* id : {"begun", "not begun", "later"}) {
    setup.running.Find(id)->request.lora_request = Lora("x", "/x");
  }
  setup.running.Find("other")->request.lora_request = Lora("x", "/before");
  setup.Step({"begun", "other"});
  setup.running.OnAdapterLoaded("x", "/x");
  setup.Step({"begun"});
  CHECK(setup.TakeOver() == 3);  // where its engine lives it goes on there
  CHECK(setup.TakeSent() == Sent{"not begun~1@0", "other~1@0", "later~1@0"});
  setup.resumption.OnLost(Predecessor(0, 1), UnavailableError("gone"), setup.now);
  CHECK(begun.error.message().find("loaded again") != std::string::npos);
  CHECK(begun.error.code() == StatusCode::kUnavailable);
  // These have the weights that are there now.
  setup.Step({"not begun", "later", "other"});
  setup.DieAndComeBack();
  CHECK(setup.TakeSent() == Sent{"not begun~2@0", "other~2@0", "later~2@0"});
  for (const Sink* each : {&not_begun, &other, &later}) CHECK(each->error.ok());
  CHECK(setup.outcomes == Outcomes{{ResumeOutcome::kNotKept, 1}, {ResumeOutcome::kResumed, 3}});
}

TEST_CASE("resumption: no output goes on with other files of its adapter") {
  Setup setup;
  std::map<std::string, const Sink*> sinks;
  for (const char* id : {"begun", "not begun", "other"}) sinks[id] = &setup.Add(id);
  for (const char* id : {"begun", "not begun"}) {
    setup.running.Find(id)->request.lora_request = Lora("x", "/x");
  }
  setup.running.Find("other")->request.lora_request = Lora("y", "/y");
  setup.Step({"begun", "other"});
  // Nobody has asked for a load.
  setup.changed = "x";
  SECTION("before its engine dies") {
    setup.DieAndComeBack();
    CHECK(setup.TakeSent() == Sent{"not begun~1@0", "other~1@0"});
  }
  SECTION("while it waits for the next one") {
    setup.changed.clear();
    setup.Die();
    CHECK(sinks["begun"]->error.ok());
    setup.changed = "x";
    setup.Ready(0);
    CHECK(setup.TakeSent() == Sent{"not begun~1@0", "other~1@0"});
  }
  SECTION("before another engine takes over, beside which its own lives on") {
    CHECK(setup.TakeOver() == 2);
    CHECK(setup.TakeSent() == Sent{"not begun~1@0", "other~1@0"});
    CHECK(sinks["begun"]->error.ok());
    setup.resumption.OnLost(Predecessor(0, 1), UnavailableError("gone"), setup.now);
  }
  CHECK(sinks["begun"]->error.message().find("its files were changed") != std::string::npos);
  for (const char* id : {"not begun", "other"}) CHECK(sinks[id]->error.ok());
}

TEST_CASE("resumption: a request that waits for an engine ends when its adapter is loaded again") {
  Setup setup;
  const Sink& a = setup.Add("a");
  const Sink& b = setup.Add("b");
  for (const char* id : {"a", "b"}) setup.running.Find(id)->request.lora_request = Lora("x", "/x");
  setup.Step({"a"});
  setup.Die();
  setup.running.OnAdapterLoaded("x", "/x");
  setup.resumption.SendWaiting(setup.now);
  CHECK(a.error.message().find("loaded again") != std::string::npos);
  CHECK(b.error.ok());
  setup.Ready(0);
  CHECK(setup.TakeSent() == Sent{"b~1@0"});
}

TEST_CASE("resumption: requests move to an engine that takes over, and nothing is counted") {
  Setup setup({.max_restarts = 2});
  const Sink& a = setup.Add("a");
  setup.Add("b");
  setup.Step({"b"});
  CHECK(setup.TakeOver() == 2);
  CHECK(setup.running.TakeAborts(Predecessor(0, 1)) == wire::AbortRequest{"a", "b"});
  CHECK(setup.running.TakeAborts(0).empty());
  CHECK(setup.TakeSent() == Sent{"a~1@0", "b~1@0"});
  CHECK(setup.running.Find("b")->request.own.num_prior_output_tokens == 1);
  CHECK(a.engines == std::vector<int>{0});
  CHECK(setup.running.num_per_engine() == std::vector<int64_t>{2, 0});
  for (int i = 0; i < 5; ++i) setup.TakeOver();
  CHECK(setup.outcomes.empty());
  CHECK(setup.running.Find("a")->deaths.num_deaths() == 0);
}

TEST_CASE("resumption: requests come back once their shard has seen the end of the engine") {
  Setup setup({.max_restarts = 0});
  setup.Add("a");
  setup.resumption.Leave(0, setup.now);
  setup.resumption.ComeBack(0, /*has_ended=*/true);
  setup.resumption.SendWaiting(setup.now);
  CHECK(setup.sent.empty());
  setup.DieAndComeBack();
  CHECK(setup.TakeSent() == Sent{"a~1@0"});
  // And at once where it has.
  setup.resumption.Leave(0, setup.now);
  setup.DieAndComeBack();
  setup.resumption.ComeBack(0, /*has_ended=*/true);
  setup.resumption.SendWaiting(setup.now);
  CHECK(setup.TakeSent() == Sent{"a~2@0"});
  CHECK(setup.running.Find("a")->deaths.num_deaths() == 0);
}

TEST_CASE("resumption: outputs from before a move still clear a request of suspicion") {
  Setup setup({.max_restarts = 1000});
  setup.Add("a");
  setup.Add("b");
  setup.DieAndComeBack();
  setup.Step({"a", "b"});
  setup.TakeOver();
  setup.TakeSent();
  setup.DieAndComeBack();
  CHECK(setup.TakeSent() == Sent{"a~3@0", "b~3@0"});  // at once, none is alone
}

TEST_CASE("resumption: a suspect is alone on the engine that takes over, too") {
  Setup setup({.max_restarts = 1000});
  setup.Add("a");
  setup.Add("b");
  setup.DieAndComeBack();
  setup.DieAndComeBack();
  setup.TakeSent();
  CHECK(setup.TakeOver() == 1);  // the other one waits
  CHECK(setup.TakeSent() == Sent{"a~3@0"});
  CHECK_FALSE(setup.health.CheckTakesRequests(0).ok());
  setup.Step({"a"});
  CHECK(setup.TakeSent() == Sent{"b~2@0"});
}

TEST_CASE("resumption: a request is sent again with its images") {
  Setup setup;
  setup.Add("a");
  wire::EngineCoreRequest& request = setup.running.Find("a")->request;
  request.mm_features.packed = "features";
  request.aux_frames = {"pixels"};
  setup.Step({"a"});
  setup.DieAndComeBack();
  CHECK(setup.TakeSent() == Sent{"a~1@0"});
  const wire::EngineCoreRequest& again = setup.running.Find("a")->request;
  CHECK(again.mm_features.packed == "features");
  CHECK(again.aux_frames == std::vector<std::string>{"pixels"});
  CHECK(again.own.num_prior_output_tokens == 1);
}

TEST_CASE("resumption: what the next engine cannot go on with ends where it runs") {
  Setup setup({.max_kept_bytes = 2 * 3 * sizeof(TokenId)});
  const Sink& too_long = setup.Add("too long");
  setup.running.Find("too long")->request.sampling_params.max_tokens = 61;
  setup.Add("fits");
  setup.running.Find("fits")->request.sampling_params.max_tokens = 60;
  const Sink& not_kept = setup.Add("not kept");  // there is room for two
  CHECK(setup.TakeOver(/*max_model_len=*/63) == 1);
  CHECK(setup.TakeSent() == Sent{"fits~1@0"});
  CHECK(setup.running.num_per_engine() == std::vector<int64_t>{1, 2});
  CHECK(setup.running.TakeAborts(Predecessor(0, 1)) == wire::AbortRequest{"fits"});
  setup.Step({"too long"}, /*finishes=*/true);
  CHECK(too_long.finished);
  setup.resumption.OnLost(Predecessor(0, 1), UnavailableError("gone"), setup.now);
  CHECK(not_kept.error.message() == "gone");
}

}  // namespace
}  // namespace tandem
