// A request that brings outputs of an earlier run goes on with exactly the tokens and logprobs of
// the run that nothing disturbed, and ends for the same reason: over the real sampler, whatever the
// request asks for, wherever it was cut, with the cache empty or full and others beside it.

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/dice.h"
#include "tests/support/engine/engine_driver.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

EngineDriverOptions Options(const std::string& model, DType dtype) {
  EngineDriverOptions options;
  options.model_dir = TANDEM_GOLDEN_DIR "/models/" + model;
  options.dtype = dtype;
  options.max_model_len = 96;
  return options;
}

std::vector<TokenId> RandomTokens(int32_t count, Dice* dice) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(dice->Roll(3, 500));
  return tokens;
}

TestRequest MakeRequest(int32_t index, Dice* dice) {
  TestRequest request;
  request.id = "request-" + std::to_string(index);
  request.prompt = RandomTokens(dice->Roll(1, 60), dice);
  wire::SamplingParams& params = request.params;
  params = GreedyParams(dice->Roll(2, 40));
  params.logprobs = dice->Roll(0, 3);
  if (!dice->Chance(3)) {
    params.temperature = 0.9;
    params.top_p = dice->Chance(2) ? 0.9 : 1.0;
    params.top_k = dice->Chance(3) ? 20 : 0;
    if (!dice->Chance(4)) params.seed = dice->Roll(0, 1 << 20);  // else it comes from the id
  }
  if (dice->Chance(2)) {
    params.repetition_penalty = 1.3;
    params.frequency_penalty = 0.4;
    params.presence_penalty = 0.2;
  }
  if (dice->Chance(3)) params.bad_words_token_ids = {RandomTokens(1, dice), RandomTokens(2, dice)};
  if (dice->Chance(4)) params.prompt_logprobs = 1;
  return request;
}

Transcript RunAlone(const EngineDriverOptions& options, const TestRequest& request) {
  EngineDriver engine(options);
  engine.Add(request.id, request.prompt, request.params);
  engine.RunAll();
  return engine.transcript(request.id);
}

// Gives the request some of what ends one: a stop id that it meets, an end of sequence, a pattern,
// and a minimum that holds them off at first.
void AddStops(const EngineDriverOptions& options, TestRequest* request, Dice* dice) {
  const std::vector<TokenId> outputs = RunAlone(options, *request).token_ids;
  const auto some = [&] {
    return outputs[static_cast<size_t>(dice->Roll(0, static_cast<int32_t>(outputs.size()) - 1))];
  };
  wire::SamplingParams& params = request->params;
  if (dice->Chance(2)) params.stop_token_ids = {some()};
  if (dice->Chance(3)) {
    params.ignore_eos = false;
    params.eos_token_id = some();
  }
  params.all_stop_token_ids = params.stop_token_ids;
  if (params.eos_token_id) params.all_stop_token_ids.push_back(*params.eos_token_id);
  if (dice->Chance(2)) params.min_tokens = dice->Roll(0, params.max_tokens);
  if (dice->Chance(4)) params.repetition_detection = wire::RepetitionDetection{3, 1, 3};
}

struct Seen {
  int num_by_stop = 0;
  int num_by_length = 0;
  int num_held_off = 0;  // by min_tokens, beyond the cut
};

void CheckRest(const Transcript& got, const Transcript& whole, size_t num_prior) {
  REQUIRE(got.error.empty());
  REQUIRE(got.finished);
  CHECK(got.finish_reason == whole.finish_reason);
  CHECK(got.stop_reason == whole.stop_reason);
  CHECK(got.token_ids ==
        std::vector<TokenId>(whole.token_ids.begin() + static_cast<ptrdiff_t>(num_prior),
                             whole.token_ids.end()));
  REQUIRE(got.rows.size() == whole.rows.size() - num_prior);
  for (size_t i = 0; i < got.rows.size(); ++i) CHECK(got.rows[i] == whole.rows[num_prior + i]);
  // Both went to the client with the first output of all.
  CHECK(got.has_prefill_stats == (num_prior == 0));
  CHECK((got.prompt_logprobs == whole.prompt_logprobs) ==
        (num_prior == 0 || whole.prompt_logprobs.num_rows == 0));
}

void CheckResuming(const EngineDriverOptions& options, uint64_t first_seed, uint64_t num_seeds) {
  Seen seen;
  for (uint64_t seed = first_seed; seed < first_seed + num_seeds; ++seed) {
    CAPTURE(options.model_dir, seed);
    Dice dice(seed);
    std::vector<TestRequest> requests;
    std::vector<Transcript> whole;
    for (int32_t i = 0; i < 5; ++i) {
      requests.push_back(MakeRequest(i, &dice));
      AddStops(options, &requests.back(), &dice);
      whole.push_back(RunAlone(options, requests.back()));
      const bool by_length = whole.back().finish_reason == wire::FinishReason::kLength;
      ++(by_length ? seen.num_by_length : seen.num_by_stop);
    }
    EngineDriverOptions beside = options;
    beside.max_num_batched_tokens = dice.Roll(8, 200);
    beside.num_blocks = dice.Chance(2) ? 64 : 7;  // that few preempt each other
    beside.enable_prefix_caching = !dice.Chance(3);
    EngineDriver engine(beside);
    for (int round = 0; round < 2; ++round) {  // the second finds its tokens in the cache
      CAPTURE(round);
      std::vector<size_t> cuts;
      engine.Forget();
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto& outputs = whole[i].token_ids;
        const auto cut =
            static_cast<size_t>(dice.Roll(0, static_cast<int32_t>(outputs.size()) - 1));
        std::vector<TokenId> tokens = requests[i].prompt;
        tokens.insert(tokens.end(), outputs.begin(), outputs.begin() + static_cast<ptrdiff_t>(cut));
        engine.Add(requests[i].id, tokens, requests[i].params, static_cast<int32_t>(cut));
        cuts.push_back(cut);
        seen.num_held_off += requests[i].params.min_tokens > static_cast<int32_t>(cut) + 1;
      }
      engine.RunAll();
      for (size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(i, cuts[i], requests[i].prompt.size());
        CheckRest(engine.transcript(requests[i].id), whole[i], cuts[i]);
      }
    }
  }
  // The draw covers what it is meant to.
  CHECK(seen.num_by_stop > 0);
  CHECK(seen.num_by_length > 0);
  CHECK(seen.num_held_off > 0);
}

TEST_CASE("resume: llama goes on with the same bits in float32 and bfloat16") {
  CheckResuming(Options("llama_plain", DType::kF32), 1, 6);
  CheckResuming(Options("llama_plain", DType::kBf16), 100, 6);
}

TEST_CASE("resume: a model with a sliding window goes on with the same bits") {
  CheckResuming(Options("mistral_swa", DType::kBf16), 200, 4);
}

TEST_CASE("resume: with steps scheduled ahead a request goes on with the same bits") {
  EngineDriverOptions options = Options("llama_plain", DType::kBf16);
  options.async_scheduling = true;
  CheckResuming(options, 300, 4);
}

}  // namespace
}  // namespace tandem
