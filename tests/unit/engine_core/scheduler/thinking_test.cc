// Reasoning as the engine sees it: budgets, which force its end, and where a grammar begins.

#include <deque>
#include <map>

#include "engine_core/scheduler/scheduler.h"
#include "tests/support/dice.h"
#include "tests/support/small_scheduler.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int32_t kVocabSize = 40;
constexpr TokenId kBegin = 30;
constexpr TokenId kEnd = 35;
const wire::ReasoningMarks kMarks = {
    .begin = {kBegin}, .end = {kEnd}, .tool_call = {36, 37}, .forced_end = {33, 34, kEnd}};

wire::EngineCoreRequest RequestOf(const RequestId& id, Tokens prompt, int32_t max_tokens) {
  wire::EngineCoreRequest request;
  request.request_id = id;
  request.prompt_token_ids = std::move(prompt);
  request.sampling_params.max_tokens = max_tokens;
  request.own.reasoning = kMarks;
  return request;
}

// ---- Budgets ----

// The definition: a reasoning goes on from the last begin mark with no end mark after it; once it
// has as many tokens as the budget the rest of the forced end follows, from what of it is there.
TokenId Forced(const Tokens& tokens, int32_t budget) {
  if (budget < 0) return kNoToken;
  size_t begin = tokens.size();
  while (begin > 0 && tokens[begin - 1] != kBegin && tokens[begin - 1] != kEnd) --begin;
  const bool in_call =
      std::search(tokens.begin() + static_cast<ptrdiff_t>(begin), tokens.end(),
                  kMarks.tool_call.begin(), kMarks.tool_call.end()) != tokens.end();
  if (begin == 0 || tokens[begin - 1] == kEnd || in_call) return kNoToken;
  const Tokens thought(tokens.begin() + static_cast<ptrdiff_t>(begin), tokens.end());
  if (static_cast<int32_t>(thought.size()) < budget) return kNoToken;
  for (size_t there = std::min<size_t>(2, thought.size());; --there) {
    const Tokens tail(thought.end() - static_cast<ptrdiff_t>(there), thought.end());
    if (std::equal(tail.begin(), tail.end(), kMarks.forced_end.begin())) {
      return kMarks.forced_end[there];
    }
  }
}

// What a model would say after these tokens: often one of the marks or a part of one.
TokenId Speak(const Tokens& tokens, uint64_t seed) {
  Dice dice(seed + 31 * tokens.size() + static_cast<uint64_t>(tokens.back()));
  return dice.Chance(2) ? dice.Roll(30, 37) : dice.Roll(0, kVocabSize - 1);
}

// Runs requests to their end with `depth` steps in flight; a worker samples where a mask allows it.
class Worker {
 public:
  Worker(size_t depth, uint64_t seed, int32_t num_blocks)
      : depth_(depth), seed_(seed), kv_(SmallCache(num_blocks)), scheduler_(Config(), &kv_) {}

  static SchedulerConfig Config() {
    SchedulerConfig config = SmallConfig(16);
    config.vocab_size = kVocabSize;
    return config;
  }
  void Add(wire::EngineCoreRequest request) { REQUIRE(scheduler_.Add(std::move(request), 0).ok()); }

  std::map<RequestId, Tokens> Run() {
    while (scheduler_.num_requests() > 0) {
      const SchedulerOutput& step = scheduler_.Schedule(++now_);
      if (step.has_work()) Execute(step);
      if (in_flight_.size() == depth_ || step.empty()) Update();
    }
    return outputs_;
  }
  int num_forced() const { return num_forced_; }

 private:
  struct InFlight {
    const SchedulerOutput* step;
    ModelOutput result;
  };

  void Execute(const SchedulerOutput& step) {
    InFlight& in_flight = in_flight_.emplace_back(InFlight{&step, {}});
    for (const AdmittedRequest& admitted : step.admitted) {
      const auto i = static_cast<size_t>(admitted.request_idx);
      rows_[Index(step.requests[i].slot)] = {admitted.token_ids.begin(), admitted.token_ids.end()};
    }
    auto mask = step.token_masks.begin();
    for (size_t i = 0; i < step.requests.size(); ++i) {
      Tokens& row = rows_[Index(step.requests[i].slot)];
      TokenId token = step.requests[i].needs_sample ? Speak(row, seed_) : kNoToken;
      if (mask != step.token_masks.end() && static_cast<size_t>(mask->request_idx) == i) {
        REQUIRE(step.requests[i].needs_sample);
        token = OnlyToken(*mask++);
      }
      if (token != kNoToken) row.push_back(token);
      in_flight.result.sampled_token_ids.push_back(token);
    }
    REQUIRE(mask == step.token_masks.end());
  }

  TokenId OnlyToken(const TokenMask& mask) {
    ++num_forced_;
    TokenId only = kNoToken;
    for (TokenId token = 0; token < kVocabSize; ++token) {
      const auto word = static_cast<uint32_t>(mask.words[static_cast<size_t>(token / 32)]);
      if ((word >> (token % 32) & 1) == 0) continue;
      REQUIRE(only == kNoToken);
      only = token;
    }
    REQUIRE(only != kNoToken);
    return only;
  }

  void Update() {
    if (in_flight_.empty()) return;
    ClientOutputs outputs;
    scheduler_.Update(*in_flight_.front().step, &in_flight_.front().result, &outputs);
    in_flight_.pop_front();
    for (const wire::EngineCoreOutput& record : TakeRecords(&outputs, ++now_)) {
      Tokens& all = outputs_[record.request_id];
      all.insert(all.end(), record.new_token_ids.begin(), record.new_token_ids.end());
    }
  }

  const size_t depth_;
  const uint64_t seed_;
  KvCacheManager kv_;
  Scheduler scheduler_;
  std::deque<InFlight> in_flight_;
  std::map<int32_t, Tokens> rows_;  // by slot
  std::map<RequestId, Tokens> outputs_;
  int num_forced_ = 0;
  double now_ = 0;
};

TEST_CASE("a thinking budget forces the end of the reasoning, however many steps are in flight") {
  int num_forced = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    std::map<RequestId, Tokens> expected;
    std::vector<wire::EngineCoreRequest> requests;
    for (const char* id : {"a", "b", "c"}) {
      Tokens prompt;
      for (int32_t i = dice.Roll(2, 9); i > 0; --i) {
        prompt.push_back(dice.Roll(0, kVocabSize - 1));
      }
      const int32_t budget = dice.Roll(-1, 6);
      const int32_t max_tokens = dice.Roll(1, 30);
      requests.push_back(RequestOf(id, prompt, max_tokens));
      if (budget >= 0) requests.back().sampling_params.thinking_token_budget = budget;
      Tokens tokens = prompt;
      for (int32_t i = 0; i < max_tokens; ++i) {
        const TokenId forced = Forced(tokens, budget);
        tokens.push_back(forced != kNoToken ? forced : Speak(tokens, seed));
        expected[id].push_back(tokens.back());
      }
    }
    // With few blocks they preempt each other.
    for (const int32_t num_blocks : {13, 60}) {
      for (const size_t depth : {1, 2}) {
        Worker worker(depth, seed, num_blocks);
        for (const wire::EngineCoreRequest& request : requests) worker.Add(request);
        CHECK(worker.Run() == expected);
        num_forced += worker.num_forced();
      }
    }
  }
  CHECK(num_forced > 1000);
}

TEST_CASE("a request that brings outputs goes on with the budget that they left") {
  for (const int32_t num_prior : {0, 1, 2, 3, 4, 5, 6}) {
    CAPTURE(num_prior);
    Tokens tokens = {1, kBegin, 2};
    for (int32_t i = 0; i < num_prior; ++i) {
      const TokenId forced = Forced(tokens, 3);
      tokens.push_back(forced != kNoToken ? forced : 7);
    }
    wire::EngineCoreRequest request = RequestOf("a", tokens, 8);
    request.own.num_prior_output_tokens = num_prior;
    request.sampling_params.thinking_token_budget = 3;
    const Request resumed(std::move(request), 0);
    CHECK(resumed.reasoning.ForcedToken(resumed.token_ids) == Forced(tokens, 3));
  }
}

TEST_CASE("a step waits for tokens in flight only when one may have to be forced after them") {
  wire::EngineCoreRequest from_wire = RequestOf("a", {kBegin, 1, 2}, 8);
  from_wire.sampling_params.thinking_token_budget = 4;
  Request request(std::move(from_wire), 0);
  CHECK(!ThinkingBudgets::MustWait(request));  // nothing is in flight
  request.num_output_placeholders = 1;
  CHECK(!ThinkingBudgets::MustWait(request));
  request.num_output_placeholders = 2;
  CHECK(ThinkingBudgets::MustWait(request));
  request.token_ids.push_back(kEnd);
  request.reasoning.Read(request.token_ids);
  CHECK(!ThinkingBudgets::MustWait(request));
}

TEST_CASE("where a grammar holds, nothing is forced") {
  for (const bool reasoning_ended : {false, true}) {
    wire::EngineCoreRequest from_wire = RequestOf("a", {1, kBegin}, 8);
    from_wire.sampling_params.thinking_token_budget = 0;
    from_wire.reasoning_ended = reasoning_ended;
    const Request request(std::move(from_wire), 0, {.grammar = true});
    CHECK(request.has_grammar_begun() == reasoning_ended);
    ThinkingBudgets budgets(kVocabSize);
    SchedulerOutput step;
    budgets.Apply(request, 0, &step);
    CHECK(step.token_masks.empty() == reasoning_ended);
  }
}

// ---- Grammars ----

int32_t GrammarBegin(Tokens tokens, int32_t num_outputs, std::optional<bool> reasoning_ended) {
  wire::EngineCoreRequest request = RequestOf("a", std::move(tokens), 16);
  request.own.num_prior_output_tokens = num_outputs;
  request.reasoning_ended = reasoning_ended;
  return Request(std::move(request), 0).grammar_begin();
}

TEST_CASE("a grammar begins after the first end of reasoning in the output") {
  CHECK(GrammarBegin({1, 2, 3}, 1, false) == INT32_MAX);
  CHECK(GrammarBegin({1, kEnd, 3}, 1, false) == INT32_MAX);  // an earlier turn's
  CHECK(GrammarBegin({1, 2, kEnd}, 1, false) == 1);
  CHECK(GrammarBegin({1, 2, kEnd, 4, kEnd}, 3, false) == 1);
  CHECK(GrammarBegin({1, 2, 3, kEnd, 4}, 3, false) == 2);
  // The mark of a call is held to the grammar.
  CHECK(GrammarBegin({1, 2, 3, 36, 37, 5}, 4, false) == 1);
  CHECK(GrammarBegin({1, 36, 37, 5}, 2, false) == 0);
  // No reasoning, or one that does not matter.
  CHECK(GrammarBegin({1, 2, 3}, 1, true) == 0);
  CHECK(GrammarBegin({1, 2, 3}, 1, std::nullopt) == 0);
  wire::EngineCoreRequest plain = RequestOf("a", {1, 2}, 4);
  plain.reasoning_ended = false;
  plain.own.reasoning.reset();
  CHECK(Request(std::move(plain), 0).grammar_begin() == 0);
}

}  // namespace
}  // namespace tandem
