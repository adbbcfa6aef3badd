// Steps that verify drafts: rules R1 to R3, R5, R20, R21, R23, R25, R26 and B7, B14, B15 where they
// concern drafts.

#include "engine_core/scheduler/draft_tokens.h"

#include <deque>

#include "engine_core/scheduler/scheduler.h"
#include "tests/support/small_scheduler.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Records = std::vector<wire::EngineCoreOutput>;
using Tokens = std::vector<TokenId>;

constexpr TokenId kStopToken = 7;

// A step's result for one request: accepted drafts and a sampled token, then guesses.
struct Answer {
  Tokens tokens;
  Tokens guesses = {};
};

// A scheduler whose drafts and results the test makes by hand.
class Bench {
 public:
  explicit Bench(const DraftConfig& drafts = {.num_speculative_tokens = 3},
                 SchedulerConfig config = SmallConfig(),
                 const KvCacheConfig& cache = SmallCache(40))
      : kv_(cache), scheduler_((config.drafts = drafts, config), &kv_) {}

  void Add(const RequestId& id, int32_t num_prompt_tokens, int32_t max_tokens = 20,
           TokenId first_token = 100, const RequestNeeds& needs = {}) {
    wire::EngineCoreRequest request =
        CountingRequest(id, num_prompt_tokens, max_tokens, first_token);
    request.sampling_params = params_;
    request.sampling_params.max_tokens = max_tokens;
    REQUIRE(scheduler_.Add(std::move(request), ++now_, needs).ok());
  }
  const SchedulerOutput& Schedule() {
    const SchedulerOutput& step = scheduler_.Schedule(++now_);
    if (step.has_work()) steps_.push_back(&step);
    return step;
  }
  // The drafts of the i-th request of the next step.
  Tokens ScheduleDrafts(size_t i = 0) {
    const SchedulerOutput& step = Schedule();
    REQUIRE(i < step.requests.size());
    const std::span<const TokenId> drafts = step.Drafts(step.requests[i]);
    return {drafts.begin(), drafts.end()};
  }
  // Folds back the oldest step, with a result for each of its requests.
  Records Update(const std::vector<Answer>& answers) {
    REQUIRE_FALSE(steps_.empty());
    const SchedulerOutput& step = *steps_.front();
    steps_.pop_front();
    REQUIRE(answers.size() == step.requests.size());
    ModelOutput result = std::exchange(result_, {});
    for (size_t i = 0; i < answers.size(); ++i) {
      const auto& [tokens, guesses] = answers[i];
      result.sampled_token_ids.push_back(tokens.empty() ? kNoToken : tokens.back());
      if (tokens.size() < 2 && guesses.empty() && step.requests[i].num_draft_tokens == 0) continue;
      const auto begin = static_cast<int32_t>(result.draft_token_ids.size());
      auto& ids = result.draft_token_ids;
      if (!tokens.empty()) ids.insert(ids.end(), tokens.begin(), tokens.end() - 1);
      const auto num_accepted = static_cast<int32_t>(ids.size()) - begin;
      ids.insert(ids.end(), guesses.begin(), guesses.end());
      result.drafts.push_back({.request_idx = static_cast<int32_t>(i),
                               .num_verified = step.requests[i].num_draft_tokens,
                               .begin = begin,
                               .num_accepted = num_accepted,
                               .num_proposed = static_cast<int32_t>(guesses.size())});
    }
    return Fold(step, &result);
  }
  // The same, with a result that has nothing about drafts.
  Records UpdateSilently(TokenId token) {
    const SchedulerOutput& step = *steps_.front();
    steps_.pop_front();
    ModelOutput result;
    result.sampled_token_ids.assign(step.requests.size(), token);
    return Fold(step, &result);
  }
  Records Fold(const SchedulerOutput& step, ModelOutput* result) {
    scheduler_.Update(step, result, &outputs_);
    return TakeRecords(&outputs_, ++now_);
  }
  // A request whose prompt has been computed, with this output and these guesses.
  void Start(const RequestId& id, int32_t num_prompt_tokens, const Tokens& guesses,
             int32_t max_tokens = 20) {
    Add(id, num_prompt_tokens, max_tokens);
    Schedule();
    Update({{{1}, guesses}});
  }
  const Request& Find(const RequestId& id) const {
    REQUIRE(scheduler_.Find(id) != nullptr);
    return *scheduler_.Find(id);
  }
  size_t num_held(const RequestId& id) const { return kv_.BlockTable(Find(id).slot).size(); }
  int32_t num_hashes() const { return kv_.pool().num_cached_hashes(); }

  KvCacheManager kv_;
  Scheduler scheduler_;
  ClientOutputs outputs_;
  wire::SamplingParams params_ = [] {
    wire::SamplingParams params;
    params.stop_token_ids = {kStopToken};
    return params;
  }();
  ModelOutput result_;  // the next Update begins with it
  std::deque<const SchedulerOutput*> steps_;
  double now_ = 0;
};

// ---- R25: accepted and rejected ----

TEST_CASE("R1 R25: drafts run with the next token, positions of rejected ones run again") {
  Bench bench;
  bench.Start("a", 5, {11, 12, 13});
  const SchedulerOutput& step = bench.Schedule();
  REQUIRE(step.requests.size() == 1);
  CHECK(step.requests[0].num_computed_tokens == 5);
  CHECK(step.requests[0].num_scheduled_tokens == 4);
  CHECK(step.requests[0].needs_sample);
  CHECK(step.num_scheduled_tokens == 4);
  CHECK(Tokens(step.draft_token_ids) == Tokens{11, 12, 13});
  CHECK(bench.Find("a").num_computed_tokens == 9);
  CHECK(bench.Find("a").num_output_placeholders == 4);
  const Records records = bench.Update({{{11, 30}, {31, 32}}});
  REQUIRE(records.size() == 1);
  CHECK(records[0].new_token_ids == Tokens{11, 30});
  CHECK(bench.Find("a").num_computed_tokens == 7);
  CHECK(bench.Find("a").num_output_placeholders == 0);
  CHECK(bench.Find("a").num_uncomputed_tokens() == 1);
  const SchedulerOutput& next = bench.Schedule();
  CHECK(next.requests[0].num_computed_tokens == 7);
  CHECK(next.requests[0].num_scheduled_tokens == 3);
  CHECK(Tokens(next.draft_token_ids) == Tokens{31, 32});
}

TEST_CASE("R25: all drafts accepted, none, and a result without drafts") {
  const size_t num_accepted = GENERATE(0, 1, 3);
  const bool silent = GENERATE(false, true);
  if (silent && num_accepted > 0) return;
  CAPTURE(num_accepted, silent);
  Bench bench;
  bench.Start("a", 5, {11, 12, 13});
  bench.Schedule();
  Tokens tokens{11, 12, 13};
  tokens.resize(num_accepted);
  tokens.push_back(40);
  const Records records = silent ? bench.UpdateSilently(40) : bench.Update({{tokens}});
  CHECK(records[0].new_token_ids == tokens);
  const Request& a = bench.Find("a");
  CHECK(a.num_tokens() == 6 + static_cast<int32_t>(tokens.size()));
  CHECK(a.num_computed_tokens == a.num_tokens() - 1);
  CHECK(a.num_output_placeholders == 0);
  CHECK(a.drafts.num_in_flight == 0);
  CHECK(bench.ScheduleDrafts().empty());  // nothing was guessed this time
}

TEST_CASE("R25: the statistics count each verification and each position") {
  Bench bench;
  bench.Start("a", 5, {11, 12, 13});
  CHECK_FALSE(bench.scheduler_.TakeStats().spec_decoding_stats.has_value());
  bench.Schedule();
  bench.Update({{{11, 12, 30}, {31}}});
  bench.Schedule();
  bench.Update({{{40}}});
  const auto stats = bench.scheduler_.TakeStats().spec_decoding_stats;
  REQUIRE(stats.has_value());
  CHECK(stats->num_spec_tokens == 3);
  CHECK(stats->num_drafts == 2);
  CHECK(stats->num_draft_tokens == 4);
  CHECK(stats->num_accepted_tokens == 2);
  CHECK(stats->num_draft_tokens_per_pos == std::vector<int64_t>{2, 1, 1});
  CHECK(stats->num_accepted_tokens_per_pos == std::vector<int64_t>{1, 1, 0});
  bench.Schedule();
  bench.Update({{{41}}});
  CHECK_FALSE(bench.scheduler_.TakeStats().spec_decoding_stats.has_value());
}

TEST_CASE("R25: the last output of a request reports its drafts, where that is wanted") {
  const DraftReport report =
      GENERATE(DraftReport::kNone, DraftReport::kSummary, DraftReport::kEveryStep);
  Bench bench({.num_speculative_tokens = 3, .report = report});
  bench.Start("a", 5, {11, 12, 13});
  bench.Schedule();
  CHECK_FALSE(bench.Update({{{11, 12, 30}, {31, 32}}})[0].spec_decode_metrics);
  bench.Schedule();
  CHECK_FALSE(bench.Update({{{40}}})[0].spec_decode_metrics);
  bench.Schedule();
  const Records last = bench.Update({{{kStopToken}}});
  REQUIRE(last[0].finish_reason);
  if (report == DraftReport::kNone) {
    CHECK_FALSE(last[0].spec_decode_metrics);
    return;
  }
  REQUIRE(last[0].spec_decode_metrics);
  const auto metrics = wire::UnpackSpecDecodeMetrics(*last[0].spec_decode_metrics);
  REQUIRE(metrics.ok());
  CHECK(metrics->num_spec_tokens == 3);
  CHECK(metrics->num_draft_tokens == 5);
  CHECK(metrics->histogram == std::vector<int64_t>{1, 0, 1, 0});
  const bool is_detailed = report == DraftReport::kEveryStep;
  CHECK(metrics->per_step_accepted ==
        (is_detailed ? std::vector<int64_t>{2, 0} : std::vector<int64_t>()));
  CHECK(metrics->per_step_drafted ==
        (is_detailed ? std::vector<int64_t>{3, 2} : std::vector<int64_t>()));
}

TEST_CASE("A request under a grammar has drafts, one whose grammar is to begin has none") {
  const bool has_begun = GENERATE(true, false);
  Bench bench;
  wire::EngineCoreRequest request = CountingRequest("a", 5, 20, 100);
  if (!has_begun) {
    request.own.reasoning.emplace().end = {99};
    request.reasoning_ended = false;
  }
  REQUIRE(bench.scheduler_.Add(std::move(request), 1, {.grammar = true}).ok());
  bench.scheduler_.EndGrammarWait({"a", bench.Find("a").order, OkStatus()}, &bench.outputs_);
  bench.Schedule();
  bench.Update({{{1}, {11, 12}}});
  REQUIRE(bench.Find("a").has_grammar_begun() == has_begun);
  CHECK(bench.ScheduleDrafts() == (has_begun ? Tokens{11, 12} : Tokens()));
}

// ---- R26, R27: token by token ----

TEST_CASE("R26: drafts accepted after a stop are dropped, with their rows of logprobs") {
  Bench bench;
  bench.Start("a", 5, {11, kStopToken, 13});
  bench.Schedule();
  RequestResult& extra = bench.result_.results.emplace_back();
  extra.logprobs = wire::LogprobsRows{
      4, 2, {11, 1, kStopToken, 1, 13, 1, 14, 1}, {0, 1, 2, 3, 4, 5, 6, 7}, {1, 2, 3, 4}};
  const Records records = bench.Update({{{11, kStopToken, 13, 14}, {15}}});
  REQUIRE(records.size() == 1);
  CHECK(records[0].new_token_ids == Tokens{11, kStopToken});
  CHECK(records[0].finish_reason == wire::FinishReason::kStop);
  CHECK(records[0].stop_reason == wire::StopReason(int64_t{kStopToken}));
  CHECK(records[0].new_logprobs ==
        wire::LogprobsRows{2, 2, {11, 1, kStopToken, 1}, {0, 1, 2, 3}, {1, 2}});
  CHECK(bench.scheduler_.num_requests() == 0);
  CHECK(bench.kv_.pool().Usage() == 0);
}

TEST_CASE("R26: max_tokens ends a request in the middle of its drafts") {
  Bench bench;
  bench.Start("a", 5, {11, 12, 13}, /*max_tokens=*/3);
  bench.Schedule();
  const Records records = bench.Update({{{11, 12, 13, 14}}});
  CHECK(records[0].new_token_ids == Tokens{11, 12});
  CHECK(records[0].finish_reason == wire::FinishReason::kLength);
}

TEST_CASE("R26 R27: min_tokens is checked at each accepted token") {
  Bench bench;
  bench.params_.repetition_detection = wire::RepetitionDetection{1, 1, 2};
  bench.params_.min_tokens = 4;
  bench.Start("a", 5, {1, 9, 9});  // "1 1" repeats, but too early
  bench.Schedule();
  const Records records = bench.Update({{{1, 9, 9, 9}}});
  CHECK(records[0].new_token_ids == Tokens{1, 9, 9});
  CHECK(records[0].finish_reason == wire::FinishReason::kRepetition);
}

// ---- R2, R3: budgets ----

TEST_CASE("R3: the token budget cuts drafts off") {
  Bench bench({.num_speculative_tokens = 3}, SmallConfig(8));
  bench.Start("a", 5, {11, 12, 13});
  bench.Add("b", 2, 20, 50);
  CHECK(bench.ScheduleDrafts() == Tokens{11, 12, 13});
  bench.Update({{{11, 30}, {31, 32, 33}}, {{60}, {61, 62, 63}}});
  bench.Add("c", 5, 20, 70);
  const SchedulerOutput& both = bench.Schedule();
  REQUIRE(both.requests.size() == 2);
  CHECK(both.num_scheduled_tokens == 8);
  bench.Update({{{40}, {41, 42, 43}}, {{61, 64}, {65, 66}}});
  bench.scheduler_.Abort("c");
  CHECK(bench.ScheduleDrafts(1) == Tokens{65, 66});

  Bench narrow({.num_speculative_tokens = 3}, SmallConfig(2));
  narrow.Start("a", 2, {11, 12, 13});
  CHECK(narrow.ScheduleDrafts() == Tokens{11});
  CHECK(narrow.Update({{{11, 30}}})[0].new_token_ids == Tokens{11, 30});
  CHECK(narrow.Find("a").num_uncomputed_tokens() == 1);
}

TEST_CASE("R2: the threshold for long prefills applies to drafts too") {
  SchedulerConfig config = SmallConfig();
  config.long_prefill_token_threshold = 2;
  Bench bench({.num_speculative_tokens = 3}, config);
  bench.Start("a", 2, {11, 12, 13});
  bench.Add("b", 2, 20, 50);
  CHECK(bench.ScheduleDrafts() == Tokens{11});
}

TEST_CASE("R3: the drafter takes inputs for each request of a step") {
  Bench bench({.num_speculative_tokens = 3, .num_input_slots = 2}, SmallConfig(12));
  bench.Add("a", 20);
  CHECK(bench.Schedule().requests[0].num_scheduled_tokens == 10);
  bench.Update({{{}}});
  CHECK(bench.Schedule().requests[0].num_scheduled_tokens == 10);
  bench.Update({{{1}, {11, 12, 13}}});
  bench.Add("b", 9, 20, 50);
  const SchedulerOutput& step = bench.Schedule();  // 4 + 2, and 4 + 2
  REQUIRE(step.requests.size() == 2);
  CHECK(step.requests[0].num_scheduled_tokens == 4);
  CHECK(step.requests[1].num_scheduled_tokens == 4);
}

TEST_CASE("R3: drafts end before max_model_len") {
  Bench bench;
  bench.Start("a", 60, {11, 12, 13});
  CHECK(bench.ScheduleDrafts() == Tokens{11, 12});
  const Records records = bench.Update({{{11, 12, 30}}});
  CHECK(records[0].finish_reason == wire::FinishReason::kLength);
  CHECK(records[0].new_token_ids == Tokens{11, 12, 30});
}

// ---- R20: padding ----

DraftConfig Padding() { return {.num_speculative_tokens = 3, .pads_new_requests = true}; }

TEST_CASE("R20: a request with one token left joins decodes with the room of one") {
  Bench bench(Padding());
  bench.Start("b", 5, {11, 12, 13});
  bench.Add("a", 1, 20, 50);
  const SchedulerOutput& step = bench.Schedule();
  REQUIRE(step.requests.size() == 2);
  CHECK(step.requests[1].num_scheduled_tokens == 4);
  CHECK(step.requests[1].needs_sample);
  CHECK(Tokens(step.draft_token_ids) == Tokens{11, 12, 13, kNoToken, kNoToken, kNoToken});
  CHECK(bench.UpdateSilently(30)[1].new_token_ids == Tokens{30});
  CHECK(bench.Find("a").num_computed_tokens == 1);
  CHECK(bench.Find("a").num_output_placeholders == 0);
  CHECK_FALSE(bench.scheduler_.TakeStats().spec_decoding_stats.has_value());
}

TEST_CASE("R20: no padding alone, with more tokens left, without room, or when it is off") {
  Bench alone(Padding());
  alone.Add("a", 1);
  CHECK(alone.ScheduleDrafts().empty());
  const auto num_padded = [](Bench bench, int32_t num_prompt_tokens) {
    bench.Start("b", 2, {});
    bench.Add("a", num_prompt_tokens, 20, 50);
    return bench.ScheduleDrafts(1).size();
  };
  CHECK(num_padded(Bench(Padding()), 1) == 3);
  CHECK(num_padded(Bench(Padding()), 2) == 0);
  CHECK(num_padded(Bench(), 1) == 0);
  CHECK(num_padded(Bench(Padding(), SmallConfig(3)), 1) == 0);
  SchedulerConfig config = SmallConfig();
  config.max_model_len = 4;
  CHECK(num_padded(Bench(Padding(), config), 1) == 0);
  DraftConfig by_batch = Padding();
  by_batch.by_batch = {{1, 3}, {2, 1}};
  CHECK(num_padded(Bench(by_batch), 1) == 0);
}

TEST_CASE("R20: no padding beside a chunk of a prompt") {
  SchedulerConfig config = SmallConfig();
  config.long_prefill_token_threshold = 4;
  Bench bench(Padding(), config);
  bench.Add("long", 20);
  bench.Add("short", 2, 20, 50);
  bench.Schedule();
  bench.Update({{{}}, {{1}, {}}});
  bench.Add("a", 1, 20, 70);
  CHECK(bench.ScheduleDrafts(2).empty());
}

TEST_CASE("R20: a request whose padding does not fit waits, and those after it") {
  Bench bench(Padding(), SmallConfig(6));
  bench.Start("b", 5, {11, 12, 13});
  bench.Add("a", 1, 20, 50);
  bench.Add("c", 2, 20, 70);
  CHECK(bench.Schedule().requests.size() == 1);
}

TEST_CASE("S11: a larger batch asks for fewer drafts") {
  DraftConfig drafts{.num_speculative_tokens = 4};
  drafts.by_batch = {{1, 4}, {2, 2}, {4, 0}};
  Bench bench(drafts);
  CHECK(bench.Schedule().num_drafts_wanted == 4);
  bench.Add("a", 2);
  CHECK(bench.Schedule().num_drafts_wanted == 4);
  bench.Update({{{1}, {}}});
  bench.Add("b", 2, 20, 50);
  bench.Add("c", 2, 20, 60);
  CHECK(bench.Schedule().num_drafts_wanted == 2);
  bench.Update({{{1}, {}}, {{1}, {}}, {{1}, {}}});
  bench.Add("d", 2, 20, 70);
  CHECK(bench.Schedule().num_drafts_wanted == 0);
}

TEST_CASE("R20: a request whose KV was loaded has blocks for its padding") {
  class Loader final : public KvConnector {
   public:
    std::optional<KvMatch> Match(const Request& request, int32_t) override {
      return KvMatch{request.num_tokens(), true};
    }
    void OnAllocated(const Request&, std::span<const BlockId>, int32_t, const KvMatch&) override {}
    KvEnding OnFinished(const Request&, wire::RequestStatus, std::span<const BlockId>) override {
      return {};
    }
  } loader;
  SchedulerConfig config = SmallConfig();
  config.drafts = {
      .num_speculative_tokens = 3, .num_lookahead_tokens = 3, .pads_new_requests = true};
  KvCacheManager kv(SmallCache(40));
  Scheduler scheduler(config, &kv, &loader);
  wire::EngineCoreRequest request;
  request.request_id = "a";
  request.prompt_token_ids = {1, 2, 3, 4, 5, 6, 7, 8};
  REQUIRE(scheduler.Add(std::move(request), 1).ok());
  ClientOutputs outputs;
  ModelOutput result;
  const SchedulerOutput& load = scheduler.Schedule(2);
  CHECK(load.empty());
  result.kv_transfers.loaded = {"a"};
  scheduler.Update(load, &result, &outputs);
  const SchedulerOutput& step = scheduler.Schedule(3);
  REQUIRE(step.requests.size() == 1);
  CHECK(step.requests[0].num_computed_tokens == 7);
  CHECK(step.requests[0].num_draft_tokens == 3);
  CHECK(kv.BlockTable(step.requests[0].slot).size() == 4);
}

TEST_CASE("R11 R20: a request that waits for a grammar is not padded into the step") {
  Bench bench(Padding());
  bench.Start("b", 5, {});
  bench.Add("a", 1, 20, 50, {.grammar = true});
  CHECK(bench.Schedule().requests.size() == 1);
  CHECK(bench.scheduler_.TakeStats().num_skipped_waiting_reqs == 1);
  bench.UpdateSilently(30);
  bench.scheduler_.EndGrammarWait({"a", bench.Find("a").order, OkStatus()}, &bench.outputs_);
  CHECK(bench.ScheduleDrafts(1).size() == 3);
  CHECK(bench.scheduler_.TakeStats().num_skipped_waiting_reqs == 0);
}

// ---- R21, R23: preemption ----

TEST_CASE("R21: a request that preempts itself drops its drafts") {
  Bench bench({.num_speculative_tokens = 3}, SmallConfig(), SmallCache(17));
  bench.Add("a", 30);
  bench.Add("b", 30, 20, 200);
  bench.Schedule();  // 8 blocks each: none is left
  bench.Update({{{1}, {11, 12, 13}}, {{2}, {21, 22, 23}}});
  CHECK(Tokens(bench.Schedule().draft_token_ids) == Tokens{11, 12, 13});
  CHECK(bench.Find("b").num_preemptions == 1);
  CHECK(bench.Find("b").drafts.token_ids.empty());
}

TEST_CASE("R21: a preemption drops the drafts") {
  Bench bench;
  bench.Start("a", 5, {11, 12, 13});
  REQUIRE(bench.scheduler_.ResetPrefixCache(/*preempt_running=*/true, 9));
  CHECK(bench.Find("a").drafts.token_ids.empty());
  const SchedulerOutput& step = bench.Schedule();
  CHECK(step.requests[0].kind == ScheduledKind::kResumed);
  CHECK(step.requests[0].num_scheduled_tokens == 6);
  CHECK(step.draft_token_ids.empty());
}

TEST_CASE("R7 R21: a victim of the same step returns the budget of its drafts and the drafter") {
  SchedulerConfig config = SmallConfig(14);
  config.policy = SchedulingPolicy::kPriority;
  Bench bench({.num_speculative_tokens = 3, .num_input_slots = 1}, config, SmallCache(7));
  bench.Start("a", 7, {11, 12, 13});
  bench.Add("b", 3, 20, 50);
  bench.Add("c", 3, 20, 80);
  CHECK(bench.Schedule().requests.size() == 3);  // 3 + 1 + 1 blocks of 6
  bench.Update({{{11, 12, 13, 14}, {15, 16, 17}}, {{60}, {61, 62, 63}}, {{90}, {91, 92, 93}}});
  // "a" takes the last block. All are equally urgent, so "a" makes room for "b".
  const SchedulerOutput& step = bench.Schedule();
  CHECK(bench.Find("a").num_preemptions == 1);
  REQUIRE(step.requests.size() == 2);
  CHECK(step.num_scheduled_tokens == 8);
  CHECK(Tokens(step.draft_token_ids) == Tokens{61, 62, 63, 91, 92, 93});
}

TEST_CASE("R23 B13: after a reset, results of drafts in flight are dropped and touch no counter") {
  Bench bench;
  bench.Start("a", 5, {11, 12, 13});
  bench.Schedule();
  bench.Schedule();
  REQUIRE_FALSE(bench.scheduler_.ResetPrefixCache(false, 50));
  const Request& a = bench.Find("a");
  CHECK(a.num_output_placeholders == 8);
  CHECK(bench.scheduler_.ResetPrefixCache(true, 51));
  CHECK(a.num_output_placeholders == 0);
  CHECK(a.drafts.num_in_flight == 0);
  CHECK(bench.Update({{{11, 12, 30}, {31}}}).empty());
  CHECK(bench.Update({{{33}, {34}}}).empty());
  CHECK(a.num_computed_tokens == 0);
  CHECK(a.num_output_placeholders == 0);
  CHECK(a.drafts.token_ids.empty());
  CHECK(bench.Schedule().requests[0].num_scheduled_tokens == 6);
}

TEST_CASE("R23: after a preemption for lack of blocks, accepted drafts in flight are delivered") {
  Bench bench({.num_speculative_tokens = 3}, SmallConfig(), SmallCache(17));
  bench.Add("a", 26);
  bench.Add("b", 26, 20, 200);
  bench.Schedule();  // 7 blocks each
  bench.Update({{{1}, {11, 12, 13}}, {{2}, {21, 22, 23}}});
  bench.Schedule();  // 30 tokens each: 8 blocks, and none is left
  bench.Schedule();  // 34: "b" is preempted with four tokens in flight
  const Request& b = bench.Find("b");
  REQUIRE(b.num_preemptions == 1);
  CHECK(b.num_stale_steps == 1);
  CHECK(b.num_output_placeholders == 0);
  const Records records = bench.Update({{{11, 30}, {}}, {{21, 22, 40}, {41, 42}}});
  REQUIRE(records.size() == 2);
  CHECK(records[1].new_token_ids == Tokens{21, 22, 40});
  CHECK(b.num_tokens() == 30);
  CHECK(b.num_computed_tokens == 0);
  CHECK(b.num_output_placeholders == 0);
  CHECK(b.drafts.token_ids.empty());
}

// ---- async ----

TEST_CASE("R1 R25 async: room for the worker's own drafts after tokens that are not known yet") {
  Bench bench;
  bench.Add("a", 5);
  bench.Schedule();
  const SchedulerOutput& second = bench.Schedule();
  REQUIRE(second.requests.size() == 1);
  CHECK(second.requests[0].num_computed_tokens == 5);
  CHECK(second.requests[0].num_scheduled_tokens == 4);
  CHECK(Tokens(second.draft_token_ids) == Tokens{kNoToken, kNoToken, kNoToken});
  const Request& a = bench.Find("a");
  CHECK(a.num_output_placeholders == 5);
  CHECK(a.drafts.num_in_flight == 3);
  CHECK(bench.Update({{{1}, {11, 12, 13}}})[0].new_token_ids == Tokens{1});
  CHECK(a.num_output_placeholders == 4);
  // All three may be accepted: the next step begins after them.
  CHECK(bench.Schedule().requests[0].num_computed_tokens == 9);
  CHECK(a.num_output_placeholders == 8);
  CHECK(bench.Update({{{11, 30}, {31, 32, 33}}})[0].new_token_ids == Tokens{11, 30});
  CHECK(a.num_tokens() == 8);
  CHECK(a.num_output_placeholders == 4);
  CHECK(a.num_computed_tokens == 11);
  CHECK(a.num_uncomputed_tokens() == 1);
  bench.Update({{{31, 32, 33, 34}, {35}}});
  CHECK(a.num_computed_tokens == 11);
  CHECK(a.num_output_placeholders == 0);
  CHECK(bench.ScheduleDrafts() == Tokens{35});  // nothing is in flight: they are known here too
}

TEST_CASE("R5 async: only one token of a step in flight is certain") {
  Bench bench;
  bench.Start("a", 5, {11, 12, 13}, /*max_tokens=*/4);  // one output so far
  bench.Schedule();
  CHECK(bench.Schedule().requests.size() == 1);  // at least two outputs, perhaps five
  CHECK(bench.Schedule().requests.size() == 1);  // at least three
  CHECK(bench.Schedule().empty());               // four
  CHECK(bench.Update({{{11, 12, 30}, {}}})[0].finish_reason == wire::FinishReason::kLength);
  CHECK(bench.Update({{{31}, {}}}).empty());
  CHECK(bench.Update({{{32}, {}}}).empty());
}

TEST_CASE("R3 async: drafts in flight count as tokens until they are rejected") {
  Bench bench;
  bench.Start("a", 56, {11, 12, 13});
  bench.Schedule();
  CHECK(bench.ScheduleDrafts() == Tokens{kNoToken, kNoToken});  // 60 + 3
  CHECK(bench.Schedule().empty());
  bench.Update({{{30}, {31, 32}}});
  bench.Update({{{40}, {41, 42, 43}}});
  CHECK(bench.ScheduleDrafts() == Tokens{41, 42, 43});  // 59 tokens are known
}

// ---- blocks ----

TEST_CASE("B15: room after the step's tokens for the drafter, up to max_model_len") {
  Bench bench({.num_speculative_tokens = 3, .num_lookahead_tokens = 3});
  bench.Add("a", 6);
  bench.Schedule();
  CHECK(bench.num_held("a") == 3);  // 6 + 3
  bench.Update({{{1}, {11, 12, 13}}});
  bench.Schedule();
  CHECK(bench.num_held("a") == 4);  // 7 + 3 + 3
  bench.scheduler_.Abort("a");
  bench.Add("long", 62);
  bench.Schedule();
  CHECK(bench.num_held("long") == 16);
}

TEST_CASE("B15: tokens after a chunk are not findable before they are scheduled") {
  Bench bench({.num_speculative_tokens = 4, .num_lookahead_tokens = 4}, SmallConfig(6));
  bench.Add("a", 16);
  bench.Schedule();
  CHECK(bench.num_held("a") == 3);
  CHECK(bench.num_hashes() == 1);
  bench.Update({{{}}});
  bench.Schedule();
  CHECK(bench.num_hashes() == 3);
}

TEST_CASE("B7: a block is findable once its tokens are accepted, never by drafts") {
  Bench bench;
  bench.Start("a", 6, {11, 12, 13});
  CHECK(bench.num_hashes() == 1);
  bench.Schedule();  // positions 6 to 9 would fill the second block
  CHECK(bench.num_hashes() == 1);
  bench.Update({{{11, 30}, {31, 32, 33}}});
  CHECK(bench.Find("a").block_hashes.size() == 2);
  CHECK(bench.num_hashes() == 2);
  // A request that begins with the accepted tokens finds it.
  BlockHasher hasher(4);
  std::vector<BlockHash> hashes;
  hasher.Extend(Tokens{100, 101, 102, 103, 104, 105, 1, 11}, {}, &hashes);
  CHECK(bench.kv_.FindCachedPrefix(hashes, 64).size() == 2);
}

TEST_CASE("S8: tokens dropped after a stop fill no block") {
  Bench bench;
  bench.Start("a", 5, {11, kStopToken, 13});  // positions 5 to 8 run, and fill the second block
  bench.Schedule();
  bench.Update({{{11, kStopToken, 13, 14}}});
  CHECK(bench.num_hashes() == 1);
}

TEST_CASE("B10: a drafter that reads ahead hits no last block, or one with the same next token") {
  Tokens prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto num_found = [&](const KvCacheConfig& cache, TokenId last) {
    KvCacheManager kv(cache);
    std::vector<BlockHash> hashes, others;
    kv.ExtendHashes(prompt, {}, &hashes);
    Admission admission;
    admission.num_tokens = 9;
    REQUIRE(kv.TryAdmit(RequestSlot{0}, {prompt, hashes}, admission));
    Tokens other = prompt;
    other.back() = last;
    kv.ExtendHashes(other, {}, &others);
    return kv.FindCachedPrefix(others, 8).size();
  };
  KvCacheConfig cache = SmallCache(40);
  CHECK(num_found(cache, 50) == 2);
  cache.drops_last_found_block = true;
  CHECK(num_found(cache, 9) == 1);
  cache.drops_last_found_block = false;
  cache.hashes_next_token = true;
  CHECK(num_found(cache, 9) == 2);
  CHECK(num_found(cache, 50) == 1);
}

TEST_CASE("B14: with drafts in flight the window begins as if all were rejected") {
  KvCacheConfig cache = SmallCache(40);
  cache.groups = LayerGroups::OfWindow(4);
  cache.max_num_batched_tokens = 64;
  cache.num_draft_tokens = 3;
  Bench bench({.num_speculative_tokens = 3}, SmallConfig(), cache);
  bench.Start("a", 6, {11, 12, 13});
  bench.Schedule();
  bench.Schedule();  // from 10 on if all are accepted, from 7 on if not: position 4 is seen
  CHECK(bench.kv_.BlockTable(bench.Find("a").slot)[0] == kNullBlock);
  CHECK(bench.kv_.BlockTable(bench.Find("a").slot)[1] != kNullBlock);
}

TEST_CASE("num_speculative_tokens 0: no drafts, no room, no statistics") {
  Bench bench(DraftConfig{});
  bench.Start("a", 5, {});
  CHECK(bench.ScheduleDrafts().empty());
  bench.Schedule();
  CHECK(bench.Find("a").num_output_placeholders == 2);
  CHECK_FALSE(bench.scheduler_.TakeStats().spec_decoding_stats.has_value());
}

}  // namespace
}  // namespace tandem
