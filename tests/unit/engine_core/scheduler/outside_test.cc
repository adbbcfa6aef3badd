// Requests that wait for something outside the scheduler: KV from a connector, grammars, a place
// for an adapter. Rules R8, R9, R11 to R13, R17, R33 and R34.

#include <algorithm>
#include <map>
#include <set>

#include "engine_core/scheduler/scheduler.h"
#include "tests/support/small_scheduler.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Records = std::vector<wire::EngineCoreOutput>;
using Ids = std::vector<RequestId>;

// A connector whose results the test sets.
class FakeConnector final : public KvConnector {
 public:
  std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) override {
    asked.emplace_back(request.id(), num_local_tokens);
    if (later.contains(request.id())) return std::nullopt;
    const auto match = matches.find(request.id());
    if (match == matches.end()) return KvMatch{};
    return KvMatch{std::min(match->second.num_tokens, request.num_tokens() - num_local_tokens),
                   match->second.is_async};
  }
  void OnAllocated(const Request& request, std::span<const BlockId> table, int32_t,
                   const KvMatch& match) override {
    allocated[request.id()] = match.num_tokens;
    tables[request.id()] = {table.begin(), table.end()};
  }
  bool WillFreeBlocks() const override { return frees_soon; }
  KvEnding OnFinished(const Request& request, wire::RequestStatus,
                      std::span<const BlockId>) override {
    finished.push_back(request.id());
    return {.keeps_blocks = keeps.contains(request.id()), .params = params};
  }

  std::map<RequestId, KvMatch> matches;
  std::set<RequestId> later;
  bool frees_soon = false;
  std::set<RequestId> keeps;
  std::vector<std::pair<RequestId, int32_t>> asked;  // with the local prefix
  std::map<RequestId, int32_t> allocated;            // tokens to load
  std::map<RequestId, std::vector<BlockId>> tables;
  Ids finished;
  wire::RawValue params;
};

Adapter Lora(AdapterId id) {
  return {.id = id, .name = "lora" + std::to_string(id), .path = "/lora", .version = 0};
}

class Bench {
 public:
  explicit Bench(const SchedulerConfig& config = Config(), int32_t num_blocks = 20)
      : kv_(SmallCache(num_blocks)), scheduler_(config, &kv_, &connector_) {}

  void Add(const RequestId& id, int32_t num_prompt_tokens, const RequestNeeds& needs = {},
           TokenId first_token = 0) {
    REQUIRE(TryAdd(id, num_prompt_tokens, needs, first_token).ok());
  }
  Status TryAdd(const RequestId& id, int32_t num_prompt_tokens, const RequestNeeds& needs = {},
                TokenId first_token = 0) {
    return scheduler_.Add(CountingRequest(id, num_prompt_tokens, 20, first_token), ++now_, needs);
  }
  const SchedulerOutput& Schedule() {
    const SchedulerOutput& step = scheduler_.Schedule(++now_);
    scheduled_.clear();
    for (const ScheduledRequest& request : step.requests) {
      scheduled_.push_back(request.num_scheduled_tokens);
    }
    return step;
  }
  Records Update(const SchedulerOutput& step, const KvTransferReport& report = {}) {
    ModelOutput result;
    for (const auto& request : step.requests) {
      result.sampled_token_ids.push_back(request.needs_sample ? 9 : kNoToken);
    }
    result.kv_transfers = report;
    scheduler_.Update(step, &result, &outputs_);
    return Take();
  }
  Records Step(const KvTransferReport& report = {}) { return Update(Schedule(), report); }
  Records Take() { return TakeRecords(&outputs_, ++now_); }
  Ids Running() const {
    Ids ids;
    for (const Request* request : scheduler_.running()) ids.push_back(request->id());
    return ids;
  }
  const Request& Find(const RequestId& id) const {
    REQUIRE(scheduler_.Find(id) != nullptr);
    return *scheduler_.Find(id);
  }
  GrammarResult Grammar(const RequestId& id, Status status = OkStatus()) const {
    return {id, Find(id).order, std::move(status)};
  }
  int32_t num_held() const { return kv_.pool().num_blocks() - 1 - kv_.pool().num_free(); }

  static SchedulerConfig Config() {
    SchedulerConfig config = SmallConfig();
    config.max_loras = 2;
    return config;
  }
  static SchedulerConfig Overlapping(SchedulerConfig config) {
    config.overlaps_steps = true;
    return config;
  }
  static SchedulerConfig Recomputing() {
    SchedulerConfig config = Config();
    config.kv_load_failure_policy = KvLoadFailurePolicy::kRecompute;
    return config;
  }

  FakeConnector connector_;
  KvCacheManager kv_;
  Scheduler scheduler_;
  ClientOutputs outputs_;
  std::vector<int32_t> scheduled_;  // tokens of each request of the last step
  double now_ = 0;
};

// ---- R11 ----

TEST_CASE("R11: a request whose grammar is not ready is passed over and keeps its place") {
  Bench bench;
  bench.Add("a", 4, {.grammar = true});
  CHECK(bench.scheduler_.pending_work() != Work::kRequests);
  bench.Add("b", 4);
  bench.Add("c", 4, {.grammar = true});
  bench.Step();
  CHECK(bench.Running() == Ids{"b"});
  CHECK(bench.scheduler_.num_waiting() == 2);
  bench.scheduler_.EndGrammarWait(bench.Grammar("c"), &bench.outputs_);
  bench.scheduler_.EndGrammarWait(bench.Grammar("a"), &bench.outputs_);
  bench.Step();
  CHECK(bench.Running() == Ids{"b", "a", "c"});
}

TEST_CASE("R11: a grammar that fails ends its request alone, as the client's mistake") {
  Bench bench;
  bench.Add("a", 4, {.grammar = true});
  bench.Add("b", 4);
  bench.scheduler_.EndGrammarWait(bench.Grammar("a", InvalidArgumentError("no rule named x")),
                                  &bench.outputs_);
  CHECK(bench.scheduler_.Find("a") == nullptr);
  CHECK(bench.scheduler_.pending_work() >= Work::kNotices);
  const Records records = bench.Step();
  REQUIRE(records.size() == 2);
  CHECK(records[0].request_id == "a");
  CHECK(records[0].finish_reason == wire::FinishReason::kError);
  REQUIRE(records[0].error.has_value());
  CHECK(records[0].error->code == wire::kErrorValidation);
  CHECK(records[0].error->message == "no rule named x");
  CHECK(records[1].request_id == "b");
  CHECK(records[1].new_token_ids == std::vector<TokenId>{9});
}

TEST_CASE("R11: a grammar that is ready after its request has ended changes nothing") {
  Bench bench;
  bench.Add("a", 4, {.grammar = true});
  const GrammarResult late = bench.Grammar("a");
  bench.scheduler_.Abort("a");
  bench.Step();
  bench.Add("a", 4, {.grammar = true});  // another with its id
  bench.scheduler_.EndGrammarWait(late, &bench.outputs_);
  CHECK(bench.scheduler_.pending_work() != Work::kRequests);
  bench.scheduler_.Abort("a");
  bench.scheduler_.EndGrammarWait(late, &bench.outputs_);
  CHECK(bench.scheduler_.num_requests() == 0);
}

TEST_CASE("a running request that loses its grammar waits for it again, without what it sampled") {
  Bench bench;
  bench.Add("a", 4, {.grammar = true});
  bench.Add("b", 4);
  bench.scheduler_.EndGrammarWait(bench.Grammar("a"), &bench.outputs_);
  bench.Step();
  const SchedulerOutput& step = bench.Schedule();
  bench.scheduler_.AwaitGrammar("a", 0);
  const Records records = bench.Update(step);
  REQUIRE(records.size() == 1);
  CHECK(records[0].request_id == "b");
  bench.Step();
  CHECK(bench.Running() == Ids{"b"});
  CHECK(bench.scheduler_.Find("a")->num_output_tokens() == 1);
  bench.scheduler_.AwaitGrammar("a", 0);  // a second time changes nothing
  bench.scheduler_.EndGrammarWait(bench.Grammar("a"), &bench.outputs_);
  bench.Step();
  CHECK(bench.Running() == Ids{"b", "a"});
  CHECK(bench.scheduler_.Find("a")->num_output_tokens() == 2);
}

TEST_CASE("a request with a grammar is not scheduled while its next mask's token is in flight") {
  Bench bench;
  bench.Add("a", 4, {.grammar = true});
  bench.Add("b", 4);
  bench.scheduler_.EndGrammarWait(bench.Grammar("a"), &bench.outputs_);
  const SchedulerOutput& first = bench.Schedule();
  CHECK(first.requests.size() == 2);
  const SchedulerOutput& second = bench.Schedule();
  CHECK(second.requests.size() == 1);
  bench.Update(first);
  const SchedulerOutput& third = bench.Schedule();
  CHECK(third.requests.size() == 2);
  bench.Update(second);
  bench.Update(third);
}

// ---- R12 ----

TEST_CASE(
    "R12: a request whose adapter has no place is passed over, one whose adapter runs is not") {
  Bench bench;
  bench.Add("a", 4, {.adapter = Lora(1)});
  bench.Add("b", 4, {.adapter = Lora(2)});
  bench.Add("c", 4, {.adapter = Lora(3)});
  bench.Add("d", 4, {.adapter = Lora(1)});
  bench.Step();
  CHECK(bench.Running() == Ids{"a", "b", "d"});
  bench.scheduler_.Abort("a");
  bench.Add("e", 4);
  bench.Step();
  CHECK(bench.Running() == Ids{"b", "d", "e"});  // d still has adapter 1
  bench.scheduler_.Abort("d");
  bench.Step();
  CHECK(bench.Running() == Ids{"b", "e", "c"});
}

TEST_CASE("R12: equal tokens under different adapters share no blocks") {
  Bench bench;
  bench.Add("a", 9, {.adapter = Lora(1)});
  bench.Add("b", 9, {.adapter = Lora(2)});
  bench.Add("c", 9);
  bench.Step();
  CHECK(bench.Find("b").first_known.total() == 0);
  CHECK(bench.Find("c").first_known.total() == 0);
  CHECK(bench.num_held() == 9);
}

TEST_CASE("R12: equal tokens under one adapter share blocks until its weights change") {
  Bench bench;
  bench.Add("a", 9, {.adapter = Lora(1)});
  bench.Step();
  bench.Add("b", 9, {.adapter = Lora(1)});
  Adapter reloaded = Lora(1);
  reloaded.version = 1;
  bench.Add("c", 9, {.adapter = reloaded});
  bench.Step();
  CHECK(bench.Find("b").first_known.num_local == 8);
  CHECK(bench.Find("c").first_known.total() == 0);
  CHECK(bench.num_held() == 3 + 1 + 3);
}

// ---- R13 ----

TEST_CASE(
    "R13: the connector is asked about tokens after the local prefix, and what it loads is not "
    "computed") {
  Bench bench;
  bench.Add("a", 5);
  bench.Step();
  bench.connector_.matches["b"] = {6, false};
  bench.Add("b", 13);
  const SchedulerOutput& step = bench.Schedule();
  CHECK(bench.connector_.asked.back() == std::pair<RequestId, int32_t>{"b", 4});
  CHECK(bench.connector_.allocated["b"] == 6);
  REQUIRE(step.requests.size() == 2);
  CHECK(step.requests[1].num_computed_tokens == 10);
  CHECK(step.requests[1].num_scheduled_tokens == 3);
  const Records records = bench.Update(step);
  const wire::PrefillStats& stats = *records.back().prefill_stats;
  CHECK(stats.num_cached_tokens == 10);
  CHECK(stats.num_local_cached_tokens == 4);
  CHECK(stats.num_external_cached_tokens == 6);
  CHECK(stats.num_computed_tokens == 3);
}

TEST_CASE("R13: a request for which the connector has no match yet is passed over") {
  Bench bench;
  bench.connector_.later = {"a"};
  bench.Add("a", 4);
  bench.Add("b", 4, {}, 50);
  bench.Step();
  CHECK(bench.Running() == Ids{"b"});
  bench.connector_.later = {};
  bench.Step();
  CHECK(bench.Running() == Ids{"b", "a"});
}

TEST_CASE("R13: what is loaded with a step can be hit at once where no other step is in flight") {
  Bench bench;
  bench.connector_.matches["a"] = {8, false};
  bench.Add("a", 9);
  bench.Add("b", 9);
  bench.Step();
  CHECK(bench.Find("b").first_known.num_local == 8);
}

TEST_CASE("R13 async: what is loaded with a step can be hit when the step is done, not before") {
  Bench bench(Bench::Overlapping(Bench::Config()));
  bench.connector_.matches["a"] = {8, false};
  bench.Add("a", 9);
  bench.Add("b", 9);
  const SchedulerOutput& step = bench.Schedule();
  CHECK(bench.Find("b").first_known.total() == 0);
  bench.Update(step);
  bench.Add("c", 9);
  bench.Step();
  CHECK(bench.Find("c").first_known.num_local == 8);
}

// ---- R17, R9 ----

TEST_CASE("R17: an asynchronous load waits with its blocks, without tokens or a SCHEDULED event") {
  Bench bench;
  bench.connector_.matches["a"] = {8, true};
  bench.Add("a", 10);
  bench.Add("b", 5, {}, 50);
  bench.Step();
  CHECK(bench.Running() == Ids{"b"});
  CHECK(bench.Find("a").status == wire::RequestStatus::kWaitingForRemoteKvs);
  CHECK(bench.Find("a").events.size() == 1);
  CHECK(bench.num_held() == 2 + 2);  // the block of its other tokens comes later
  bench.Step();
  CHECK(bench.Running() == Ids{"b"});
  bench.Step({.loaded = {"a"}});
  bench.Schedule();
  CHECK(bench.Running() == Ids{"b", "a"});
  CHECK(bench.scheduled_ == std::vector<int32_t>{1, 2});
  CHECK(bench.connector_.asked.size() == 2);  // not asked again for what it holds
}

TEST_CASE("R17: when a whole prompt is loaded, its last token is computed") {
  Bench bench;
  bench.connector_.matches["a"] = {8, true};
  bench.Add("a", 8);
  bench.Step();
  bench.Step({.loaded = {"a"}});
  const Records records = bench.Step();
  CHECK(bench.scheduled_ == std::vector<int32_t>{1});
  REQUIRE(records.size() == 1);
  CHECK(records[0].prefill_stats->num_external_cached_tokens == 8);
}

TEST_CASE(
    "R9: those that hold blocks go before those that came first, also where none is admitted") {
  SchedulerConfig config = Bench::Config();
  config.max_num_active_seqs = 1;
  Bench bench(config);
  bench.connector_.matches["a"] = {4, true};
  bench.connector_.later = {"x"};
  bench.Add("x", 4, {}, 50);
  bench.Add("a", 6);
  bench.Step();
  bench.Step({.loaded = {"a"}});
  bench.connector_.later = {};
  SECTION("order") {
    bench.Step();
    CHECK(bench.Running() == Ids{"a"});
  }
  SECTION("paused for new requests") {
    bench.scheduler_.SetPauseState(PauseState::kPausedNew);
    CHECK(bench.scheduler_.pending_work() == Work::kRequests);
    bench.Step();
    CHECK(bench.Running() == Ids{"a"});
  }
}

TEST_CASE("R17: the blocks of an aborted load stay until it has ended, and so does its id") {
  Bench bench;
  bench.connector_.matches["a"] = {8, true};
  bench.Add("a", 10);
  bench.Step();
  bench.scheduler_.Abort("a");
  CHECK(bench.connector_.finished == Ids{"a"});
  CHECK(bench.num_held() == 2);
  CHECK(bench.scheduler_.transfers().keeps_any());
  CHECK(bench.TryAdd("a", 4).code() == StatusCode::kAlreadyExists);
  bench.Step();
  CHECK(bench.num_held() == 2);
  CHECK(bench.scheduler_.pending_work() == Work::kTransfers);
  bench.Step({.loaded = {"a"}});
  CHECK(bench.num_held() == 0);
  CHECK_FALSE(bench.scheduler_.transfers().keeps_any());
  CHECK(bench.scheduler_.pending_work() == Work::kNone);
  CHECK(bench.TryAdd("a", 4).ok());
}

TEST_CASE("R17: loads that hold all blocks leave room for each other to run") {
  Bench bench(Bench::Config(), 17);  // 16 blocks: two prompts of 32
  for (const RequestId id : {"a", "b"}) {
    bench.connector_.matches[id] = {32, true};
    bench.Add(id, 32, {}, id == "a" ? 0 : 40);
  }
  bench.Step();
  CHECK(bench.num_held() == 16);
  for (int i = 0; i < 100 && bench.scheduler_.num_requests() > 0; ++i) {
    bench.Step({.loaded = {"a", "b"}});
  }
  CHECK(bench.scheduler_.num_requests() == 0);
}

TEST_CASE("R17: a load that lacks room does not keep back one that has it") {
  SchedulerConfig config = Bench::Config();
  config.policy = SchedulingPolicy::kPriority;
  config.reserve_full_isl = false;
  Bench bench(config, 6);  // 5 blocks
  bench.connector_.matches["late"] = {4, true};
  bench.connector_.matches["first"] = {12, true};
  bench.Add("late", 8, {}, 40);  // loads 1 block of 2
  bench.Step();
  wire::EngineCoreRequest first = CountingRequest("first", 20, 20);  // loads 3 of 5, and leaves 1
  first.priority = -1;
  REQUIRE(bench.scheduler_.Add(std::move(first), ++bench.now_, {}).ok());
  bench.Step();
  CHECK(bench.num_held() == 4);
  bench.Step({.loaded = {"late", "first"}});
  bench.Step();
  CHECK(bench.Running() == Ids{"late"});
}

// ---- R33 ----

TEST_CASE("R33: a finished request's blocks stay until the connector releases them") {
  Bench bench;
  bench.connector_.keeps = {"a"};
  bench.Add("a", 10);
  bench.Step();
  bench.scheduler_.Abort("a");
  CHECK(bench.num_held() == 3);
  CHECK(bench.scheduler_.num_requests() == 0);
  CHECK_FALSE(bench.scheduler_.ResetPrefixCache(/*preempt_running=*/true, ++bench.now_));
  bench.Step({.released = {"b"}});
  CHECK(bench.num_held() == 3);
  bench.Step({.released = {"a"}});
  CHECK(bench.num_held() == 0);
  CHECK(bench.scheduler_.ResetPrefixCache(/*preempt_running=*/true, ++bench.now_));
}

TEST_CASE("R33: the output that ends a request has the connector's parameters, others have none") {
  Bench bench;
  bench.connector_.params = {"\x80"};
  bench.Add("a", 10);
  for (Records records = bench.Step();; records = bench.Step()) {
    REQUIRE(records.size() == 1);
    CHECK(records[0].kv_transfer_params.has_value() == records[0].finish_reason.has_value());
    if (!records[0].finish_reason) continue;
    CHECK(*records[0].kv_transfer_params == wire::RawValue{"\x80"});
    return;
  }
}

// ---- R8 ----

TEST_CASE("R8: no request is preempted while the connector is about to free blocks") {
  Bench bench(Bench::Config(), 6);  // 5 blocks
  bench.Add("a", 8);
  bench.Add("b", 12, {}, 50);
  bench.Step();
  CHECK(bench.num_held() == 5);
  bench.connector_.frees_soon = true;
  bench.Add("c", 1, {}, 90);
  bench.Schedule();  // a needs a third block
  CHECK(bench.scheduled_.empty());
  CHECK(bench.Running() == Ids{"a", "b"});
  CHECK_FALSE(bench.scheduler_.ResetPrefixCache(/*preempt_running=*/true, ++bench.now_));
  CHECK(bench.Running() == Ids{"a", "b"});
  bench.connector_.frees_soon = false;
  bench.Schedule();
  CHECK(bench.Running() == Ids{"a"});
  CHECK(bench.Find("b").status == wire::RequestStatus::kPreempted);
}

// ---- R34 ----

TEST_CASE("R34: a failed load with the step ends its request, or it is computed again") {
  const bool recompute = GENERATE(false, true);
  Bench bench(recompute ? Bench::Recomputing() : Bench::Config());
  bench.connector_.matches["a"] = {12, false};
  bench.Add("a", 14);
  const SchedulerOutput& step = bench.Schedule();
  const Records records = bench.Update(step, {.failed_blocks = {bench.connector_.tables["a"][1]}});
  if (!recompute) {
    REQUIRE(records.size() == 1);
    CHECK(records[0].finish_reason == wire::FinishReason::kError);
    CHECK(records[0].error->code == wire::kErrorInternal);
    CHECK(bench.num_held() == 0);
    CHECK(bench.kv_.pool().num_cached_hashes() == 1);  // the block before the failure
    return;
  }
  CHECK(records.empty());
  CHECK(bench.Find("a").num_output_tokens() == 0);
  CHECK(bench.Running() == Ids{"a"});
  const SchedulerOutput& again = bench.Schedule();
  REQUIRE(again.requests.size() == 1);
  CHECK(again.freed_slots == std::vector<RequestSlot>{again.requests[0].slot});
  CHECK(again.requests[0].kind == ScheduledKind::kResumed);
  CHECK(again.requests[0].num_new_blocks == 4);
  CHECK(again.requests[0].num_computed_tokens == 4);
  CHECK(again.requests[0].num_scheduled_tokens == 10);
  CHECK(bench.Update(again).size() == 1);
}

TEST_CASE(
    "R34: a failed asynchronous load ends its request, or leaves it the KV before the failure") {
  const bool recompute = GENERATE(false, true);
  Bench bench(recompute ? Bench::Recomputing() : Bench::Config());
  bench.connector_.matches["a"] = {12, true};
  bench.Add("a", 14);
  bench.Step();
  // Failures may be reported before the load has ended.
  const Records early = bench.Step({.failed_blocks = {bench.connector_.tables["a"][2]}});
  if (!recompute) {
    REQUIRE(early.size() == 1);
    CHECK(early[0].finish_reason == wire::FinishReason::kError);
    CHECK(bench.num_held() == 3);
    bench.Step({.loaded = {"a"}});
    CHECK(bench.num_held() == 0);
    return;
  }
  CHECK(early.empty());
  CHECK(bench.Find("a").status == wire::RequestStatus::kWaitingForRemoteKvs);
  const Records records =
      bench.Step({.loaded = {"a"}, .failed_blocks = {bench.connector_.tables["a"][1]}});
  CHECK(records.empty());
  CHECK(bench.num_held() == 3);
  bench.Step();
  CHECK(bench.num_held() == 4);
  CHECK(bench.scheduled_ == std::vector<int32_t>{10});
}

TEST_CASE("R34: a request of which two loads have brought nothing is computed") {
  Bench bench(Bench::Recomputing());
  bench.connector_.matches["a"] = {12, true};
  bench.Add("a", 14);
  bench.Step();
  const bool is_whole = GENERATE(false, true);
  for (int i = 0; i < 2; ++i) {
    KvTransferReport report;
    if (is_whole) {
      report.failed_loads = {"a"};
    } else {
      report.loaded = {"a"};
      report.failed_blocks = {bench.connector_.tables["a"][0]};
    }
    bench.Step(report);
    CHECK(bench.connector_.asked.size() == static_cast<size_t>(1 + i));
    bench.Step();
  }
  CHECK(bench.connector_.asked.size() == 2);
  CHECK(bench.scheduled_ == std::vector<int32_t>{14});
}

TEST_CASE("R34: what a failed load has left wrong is not hit before it is computed again") {
  SchedulerConfig config = Bench::Recomputing();
  config.long_prefill_token_threshold = 4;
  Bench bench(config);
  bench.connector_.matches["a"] = {12, false};
  bench.Add("a", 14);
  const SchedulerOutput& loading = bench.Schedule();
  bench.Update(loading, {.failed_blocks = {bench.connector_.tables["a"][0]}});
  bench.Add("b", 14);
  bench.Step();  // a: its first block
  CHECK(bench.Find("b").first_known.num_local == 4);
}

TEST_CASE("R34: what an aborted request has computed on top of a failed load cannot be found") {
  Bench bench(Bench::Recomputing());
  bench.connector_.matches["a"] = {4, false};
  bench.Add("a", 14);
  const SchedulerOutput& step = bench.Schedule();
  bench.scheduler_.Abort("a");
  CHECK(bench.kv_.pool().num_cached_hashes() == 3);
  bench.Update(step, {.failed_blocks = {bench.connector_.tables["a"][0]}});
  CHECK(bench.kv_.pool().num_cached_hashes() == 0);
}

TEST_CASE("R34: what was computed after a failed load, also in steps in flight, is dropped") {
  Bench bench(Bench::Overlapping(Bench::Recomputing()));
  bench.connector_.matches["a"] = {8, false};
  bench.Add("a", 10);
  const SchedulerOutput& loading = bench.Schedule();
  const SchedulerOutput& next = bench.Schedule();
  CHECK(next.requests.size() == 1);
  CHECK_FALSE(bench.scheduler_.ResetPrefixCache(/*preempt_running=*/true, ++bench.now_));
  CHECK(bench.Update(loading, {.failed_blocks = {bench.connector_.tables["a"][0]}}).empty());
  const SchedulerOutput& again = bench.Schedule();
  CHECK(bench.Update(next).empty());
  const Records records = bench.Update(again);
  REQUIRE(records.size() == 1);
  CHECK(bench.Find("a").num_output_tokens() == 1);
  CHECK(records[0].prefill_stats->num_external_cached_tokens == 8);
}

TEST_CASE("R34: the blocks of a load with the step stay when its request is aborted meanwhile") {
  Bench bench(Bench::Overlapping(Bench::Config()));
  bench.connector_.matches["a"] = {8, false};
  bench.Add("a", 10);
  const SchedulerOutput& step = bench.Schedule();
  bench.scheduler_.Abort("a");
  CHECK(bench.num_held() == 3);
  CHECK(bench.Update(step, {.failed_blocks = {bench.connector_.tables["a"][0]}}).empty());
  CHECK(bench.num_held() == 0);
  CHECK(bench.kv_.pool().num_cached_hashes() == 0);
}

}  // namespace
}  // namespace tandem
