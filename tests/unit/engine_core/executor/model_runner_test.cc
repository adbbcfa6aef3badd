// The runner over hand-made steps: slots, chunks, masks, and requests that fail beside others.

#include "engine_core/executor/model_runner.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "engine_core/models/registry.h"
#include "proto_msgpack/token_ids.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/engine/engine_driver.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

constexpr int kBlockSize = 32;

EngineDriverOptions TinyOptions() {
  EngineDriverOptions options;
  options.model_dir = TANDEM_GOLDEN_DIR "/models/llama_tied";
  options.reference_backend = true;
  return options;
}

// On an emulated device; a step is submitted before the host has the tokens of the one before.
EngineDriverOptions OnDevice(EngineDriverOptions options) {
  options.make_backend = [] {
    return MakeEmulatedCudaBackend({.dtype = DType::kF32, .num_threads = 1}).value();
  };
  options.max_num_batched_tokens = 32;
  options.max_num_seqs = 4;
  options.graph_sizes = {1, 2};
  options.async_scheduling = true;
  return options;
}

// Makes everything that a start makes, in its order.
StatusOr<std::unique_ptr<ModelRunner>> StartOnDevice(const std::string& model, DType dtype) {
  const std::string dir = TANDEM_GOLDEN_DIR "/models/" + model;
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(dir));
  ASSIGN_OR_RETURN(const auto weights, OpenSafetensors(dir));
  ModelRunnerOptions options;
  options.limits = {.num_blocks = 8,
                    .block_size = kBlockSize,
                    .max_num_seqs = 2,
                    .max_num_batched_tokens = 20,
                    .max_model_len = 64,
                    .vocab_size = static_cast<int32_t>(config.vocab_size)};
  options.graph_sizes = {1, 2};
  ASSIGN_OR_RETURN(auto backend, MakeEmulatedCudaBackend({.dtype = dtype, .num_threads = 1}));
  ASSIGN_OR_RETURN(auto loaded,
                   LoadModel({config, ModelLimitsOf(options.limits), *weights, *backend}));
  return ModelRunner::Create(std::move(backend), std::move(loaded), config, options);
}

// Builds one step for a runner that is driven without a scheduler.
class StepBuilder {
 public:
  void Admit(int slot, const RequestId& id, const std::vector<TokenId>& tokens,
             const wire::SamplingParams& params, int num_scheduled, std::vector<BlockId> blocks,
             bool needs_sample) {
    prompts.push_back(tokens);
    step.admitted.push_back({static_cast<int32_t>(step.requests.size()), &id, &params, nullptr,
                             prompts.back(), static_cast<int32_t>(tokens.size())});
    Run(slot, 0, num_scheduled, std::move(blocks), needs_sample);
    step.requests.back().kind = ScheduledKind::kNew;
  }
  void Run(int slot, int num_computed, int num_scheduled, std::vector<BlockId> blocks,
           bool needs_sample) {
    ScheduledRequest& request = step.requests.emplace_back();
    request.slot = RequestSlot{slot};
    request.num_computed_tokens = num_computed;
    request.num_scheduled_tokens = num_scheduled;
    request.new_blocks_begin = static_cast<int32_t>(step.new_block_ids.size());
    request.num_new_blocks = static_cast<int32_t>(blocks.size());
    request.needs_sample = needs_sample;
    step.new_block_ids.insert(step.new_block_ids.end(), blocks.begin(), blocks.end());
    step.num_scheduled_tokens += num_scheduled;
  }
  // Limits the request that was added last to these tokens.
  void Allow(const std::vector<TokenId>& token_ids, int64_t vocab_size) {
    std::vector<int32_t>& words = masks.emplace_back(TokenMaskWords(vocab_size));
    for (const TokenId id : token_ids) words[static_cast<size_t>(id / 32)] |= 1 << (id % 32);
    step.token_masks.push_back({static_cast<int32_t>(step.requests.size()) - 1, words});
  }
  // The only token of the request that was added last, and those that follow it.
  void Force(TokenId sampled, const std::vector<TokenId>& following, int64_t vocab_size) {
    Allow({sampled}, vocab_size);
    step.token_masks.back().forced_begin = static_cast<int32_t>(step.forced_token_ids.size());
    step.token_masks.back().num_forced = static_cast<int32_t>(following.size());
    step.forced_token_ids.insert(step.forced_token_ids.end(), following.begin(), following.end());
  }
  SchedulerOutput step;
  std::deque<std::vector<TokenId>> prompts;  // what step.admitted points at
  std::deque<std::vector<int32_t>> masks;    // what step.token_masks points at
};

TEST_CASE("model runner: a step without requests only frees slots") {
  EngineDriver engine(TinyOptions());
  const wire::SamplingParams params = GreedyParams(4);
  const RequestId id = "a";
  ModelOutput result;
  StepBuilder first;
  first.Admit(0, id, {5, 6, 7}, params, 3, {BlockId{1}}, true);
  REQUIRE(engine.runner().Execute(first.step, &result).ok());
  REQUIRE(result.sampled_token_ids.size() == 1);
  CHECK(result.sampled_token_ids[0] != kNoToken);
  CHECK(result.results.empty());
  StepBuilder second;
  second.step.freed_slots = {RequestSlot{0}};
  REQUIRE(engine.runner().Execute(second.step, &result).ok());
  CHECK(result.sampled_token_ids.empty());
}

TEST_CASE("model runner: a slot freed in a step can be admitted in the same step") {
  EngineDriver engine(TinyOptions());
  const wire::SamplingParams params = GreedyParams(4);
  const RequestId a = "a", b = "b";
  ModelOutput result;
  StepBuilder alone;
  alone.Admit(3, b, {9, 8}, params, 2, {BlockId{4}}, true);
  REQUIRE(engine.runner().Execute(alone.step, &result).ok());
  const TokenId expected = result.sampled_token_ids[0];
  StepBuilder first;
  first.Admit(0, a, {5, 6, 7}, params, 3, {BlockId{1}}, true);
  REQUIRE(engine.runner().Execute(first.step, &result).ok());
  StepBuilder second;
  second.step.freed_slots = {RequestSlot{0}};
  second.Admit(0, b, {9, 8}, params, 2, {BlockId{2}}, true);
  REQUIRE(engine.runner().Execute(second.step, &result).ok());
  CHECK(result.sampled_token_ids[0] == expected);
}

TEST_CASE("model runner: a slot changes hands while its last request's step is in flight") {
  wire::SamplingParams greedy = GreedyParams(4), with_logprobs = greedy;
  with_logprobs.logprobs = 1;
  with_logprobs.prompt_logprobs = 2;
  const RequestId a = "a", b = "b";
  const bool first_reports = GENERATE(false, true);
  CAPTURE(first_reports);
  StepBuilder first, second, third;
  first.Admit(0, a, {5, 6, 7}, first_reports ? with_logprobs : greedy, 3, {BlockId{1}}, true);
  second.step.freed_slots = {RequestSlot{0}};
  second.Admit(0, b, {9, 8}, first_reports ? greedy : with_logprobs, 2, {BlockId{2}}, true);
  third.Run(0, 2, 1, {}, true);
  EngineDriver reference(TinyOptions()), device(OnDevice(TinyOptions()));
  ModelOutput expected[3], results[3];
  REQUIRE(reference.runner().Execute(first.step, &expected[0]).ok());
  REQUIRE(reference.runner().Execute(second.step, &expected[1]).ok());
  REQUIRE(reference.runner().Execute(third.step, &expected[2]).ok());
  REQUIRE(device.runner().Submit(first.step).ok());
  int64_t num_run = NumEmulatedKernels();
  REQUIRE(device.runner().Submit(second.step).ok());
  CHECK((NumEmulatedKernels() > num_run) == first_reports);  // a row that gathers a result is kept
  REQUIRE(device.runner().Collect(&results[0]).ok());
  num_run = NumEmulatedKernels();
  REQUIRE(device.runner().Submit(third.step).ok());
  CHECK(NumEmulatedKernels() == num_run);
  REQUIRE(device.runner().Collect(&results[1]).ok());
  REQUIRE(device.runner().Collect(&results[2]).ok());
  for (size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK(results[i].sampled_token_ids == expected[i].sampled_token_ids);
    REQUIRE(results[i].results.size() == expected[i].results.size());
    for (size_t r = 0; r < results[i].results.size(); ++r) {
      const RequestResult &got = results[i].results[r], &wanted = expected[i].results[r];
      CHECK(got.logprobs->token_ids == wanted.logprobs->token_ids);
      REQUIRE(got.prompt_logprobs.has_value() == wanted.prompt_logprobs.has_value());
      if (!got.prompt_logprobs) continue;
      CHECK(got.prompt_logprobs->token_ids == wanted.prompt_logprobs->token_ids);
      CHECK(got.prompt_logprobs->ranks == wanted.prompt_logprobs->ranks);
    }
  }
  CHECK(results[first_reports ? 0 : 1].results.size() == 1);
  CHECK(device.runner().num_overlapped() == (first_reports ? 1 : 2));
}

TEST_CASE("model runner: a step waits for tokens that the host samples") {
  wire::SamplingParams greedy = GreedyParams(4), on_host = greedy;
  on_host.bad_words_token_ids = {std::vector<TokenId>(kMaxDeviceWordTokens + 1, 5)};
  const RequestId a = "a", b = "b";
  const bool is_named = GENERATE(true, false);  // by the second step
  CAPTURE(is_named);
  StepBuilder first, second;
  first.Admit(0, a, {5, 6, 7}, on_host, 3, {BlockId{1}}, true);
  first.Admit(1, b, {9, 8}, greedy, 2, {BlockId{2}}, true);
  if (is_named) second.Run(0, 3, 1, {}, true);
  second.Run(1, 2, 1, {}, true);
  EngineDriver reference(TinyOptions()), device(OnDevice(TinyOptions()));
  ModelOutput expected[2], results[2];
  REQUIRE(reference.runner().Execute(first.step, &expected[0]).ok());
  REQUIRE(reference.runner().Execute(second.step, &expected[1]).ok());
  REQUIRE(device.runner().Submit(first.step).ok());
  REQUIRE(device.runner().Submit(second.step).ok());
  for (size_t i = 0; i < 2; ++i) {
    CAPTURE(i);
    REQUIRE(device.runner().Collect(&results[i]).ok());
    CHECK(results[i].sampled_token_ids == expected[i].sampled_token_ids);
  }
  CHECK(device.runner().num_overlapped() == 0);
}

TEST_CASE("model runner: a request that fails may run once more before its failure is known") {
  wire::SamplingParams greedy = GreedyParams(4), failing = greedy;
  failing.logprobs = 1'000'000;  // more than there are tokens
  const RequestId a = "a", b = "b";
  StepBuilder first, second;
  first.Admit(0, a, {5, 6, 7}, failing, 3, {BlockId{1}}, true);
  first.Admit(1, b, {9, 8}, greedy, 2, {BlockId{2}}, true);
  second.Run(0, 3, 1, {}, true);
  second.Run(1, 2, 1, {}, true);
  EngineDriver engine(OnDevice(TinyOptions())), alone(TinyOptions());
  alone.Add("b", {9, 8}, GreedyParams(2));
  alone.RunAll();
  REQUIRE(engine.runner().Submit(first.step).ok());
  REQUIRE(engine.runner().Submit(second.step).ok());
  CHECK(engine.runner().num_overlapped() == 1);
  for (size_t i = 0; i < 2; ++i) {
    CAPTURE(i);
    ModelOutput result;
    REQUIRE(engine.runner().Collect(&result).ok());
    REQUIRE(result.results.size() == 1);
    CHECK(result.results[0].request_idx == 0);
    CHECK_THAT(result.results[0].status.message(), Contains("logprobs is 1000000"));
    CHECK(result.sampled_token_ids ==
          std::vector<TokenId>{kNoToken, alone.transcript("b").token_ids[i]});
  }
}

TEST_CASE("model runner: outputs that are given are the request's, and then it samples") {
  const std::vector<TokenId> prompt = {5, 6, 7}, given = {9, 11, 9, 2};
  wire::SamplingParams params = GreedyParams(6), reference = params;
  params.trace_decode_token_ids = wire::PackedTokenIds(given);
  params.logprobs = 0;
  reference.prompt_logprobs = 0;
  const bool on_device = GENERATE(false, true);
  CAPTURE(on_device);
  EngineDriver engine(on_device ? OnDevice(TinyOptions()) : TinyOptions());
  std::vector<TokenId> whole = prompt;
  whole.insert(whole.end(), given.begin(), given.end());
  engine.Add("reference", whole, reference);
  engine.Add("a", prompt, params);
  engine.RunAll();
  const Transcript& scored = engine.transcript("reference");
  std::vector<TokenId> expected = given;
  expected.insert(expected.end(), scored.token_ids.begin(), scored.token_ids.begin() + 2);
  CHECK(engine.transcript("a").token_ids == expected);
  for (size_t i = 0; i < given.size(); ++i) {
    CAPTURE(i);
    const size_t place = prompt.size() + i - 1;
    CHECK(engine.transcript("a").logprobs[i] ==
          Approx(scored.prompt_logprobs.logprobs[place]).margin(1e-4));
  }
}

TEST_CASE("model runner: a request that resumes has its outputs counted") {
  wire::SamplingParams params = GreedyParams(4);
  params.logit_bias = {{9, 100.0}, {11, 90.0}, {12, 80.0}};
  params.repetition_penalty = 10;  // so each of them is sampled once
  const RequestId a = "a";
  const bool on_device = GENERATE(false, true);
  CAPTURE(on_device);
  EngineDriver engine(on_device ? OnDevice(TinyOptions()) : TinyOptions());
  StepBuilder step;
  step.Admit(0, a, {5, 6, 7, 9, 11}, params, 5, {BlockId{1}}, true);
  step.step.admitted[0].num_prompt_tokens = 3;
  ModelOutput result;
  REQUIRE(engine.runner().Execute(step.step, &result).ok());
  CHECK(result.sampled_token_ids == std::vector<TokenId>{12});
}

TEST_CASE("model runner: no graph runs a step that samples nothing after one of its tokens") {
  wire::SamplingParams greedy = GreedyParams(9), penalized = greedy;
  penalized.frequency_penalty = 2;
  const RequestId a = "a", b = "b", c = "c";
  std::deque<StepBuilder> steps(5);
  steps[0].Admit(0, a, {5, 6, 7}, greedy, 3, {BlockId{1}}, true);
  steps[0].Admit(1, b, {9, 8}, greedy, 2, {BlockId{2}}, true);
  for (const int step : {1, 2}) {
    steps[static_cast<size_t>(step)].Run(0, 2 + step, 1, {}, true);
    steps[static_cast<size_t>(step)].Run(1, 1 + step, 1, {}, true);
  }
  steps[3].step.freed_slots = {RequestSlot{1}};
  steps[3].Run(0, 5, 1, {}, true);
  steps[3].Admit(1, c, {4, 11}, penalized, 1, {BlockId{3}}, false);
  steps[4].Run(0, 6, 1, {}, true);
  steps[4].Run(1, 1, 1, {}, true);
  EngineDriver reference(TinyOptions()), device(OnDevice(TinyOptions()));
  for (size_t i = 0; i < steps.size(); ++i) {
    CAPTURE(i);
    ModelOutput expected, result;
    REQUIRE(reference.runner().Execute(steps[i].step, &expected).ok());
    const int64_t num_replays = device.runner().num_replays();
    REQUIRE(device.runner().Execute(steps[i].step, &result).ok());
    CHECK(result.sampled_token_ids == expected.sampled_token_ids);
    CHECK((device.runner().num_replays() > num_replays) == (i != 0 && i != 3));
  }
}

// The rows of a model's embedding table.
std::shared_ptr<const PromptEmbeddings> RowsOfTable(const std::vector<TokenId>& ids) {
  const std::string dir = TinyOptions().model_dir;
  const auto config = ReadModelConfig(dir);
  const auto weights = OpenSafetensors(dir);
  REQUIRE((config.ok() && weights.ok()));
  const auto table =
      (*weights)->Get("model.embed_tokens.weight", config->vocab_size, config->hidden_size);
  REQUIRE(table.ok());
  PromptEmbeddings rows;
  rows.type = table->view().dtype == DType::kF32    ? PromptEmbeddings::Type::kFloat32
              : table->view().dtype == DType::kBf16 ? PromptEmbeddings::Type::kBfloat16
                                                    : PromptEmbeddings::Type::kFloat16;
  rows.runs = {{0, static_cast<int32_t>(ids.size())}};
  rows.num_columns = static_cast<int32_t>(config->hidden_size);
  for (const TokenId id : ids) {
    const Tensor row = table->view().Rows(id, 1);
    rows.data.append(static_cast<const char*>(row.data), rows.row_bytes());
  }
  return std::make_shared<const PromptEmbeddings>(std::move(rows));
}

// In chunks of 3, 3 and 1 beside a request of tokens; a chunk of one token with its row of logits
// is what graphs hold.
TEST_CASE("model runner: embeddings of a prompt's tokens give what the tokens give") {
  const bool on_device = GENERATE(false, true);
  CAPTURE(on_device);
  const EngineDriverOptions options = on_device ? OnDevice(TinyOptions()) : TinyOptions();
  const std::vector<TokenId> prompt = {5, 6, 7, 8, 9, 10, 11};
  const wire::SamplingParams params = GreedyParams(9);
  const RequestId a = "a", b = "b";
  std::vector<std::vector<TokenId>> outputs;
  using Runs = std::vector<PromptEmbeddings::Run>;
  for (const Runs& runs : {Runs{}, Runs{{0, 7}}, Runs{{1, 1}, {4, 2}}}) {
    EngineDriver engine(options);
    std::deque<StepBuilder> steps(5);
    std::vector<TokenId> ids = prompt, embedded;
    for (const PromptEmbeddings::Run& run : runs) {
      for (int32_t i = run.begin; i < run.end(); ++i) {
        embedded.push_back(std::exchange(ids[static_cast<size_t>(i)], 0));
      }
    }
    steps[0].Admit(0, b, {9, 8}, params, 2, {BlockId{2}}, true);
    steps[0].Admit(1, a, ids, params, 3, {BlockId{1}}, false);
    if (!runs.empty()) {
      auto rows = std::make_shared<PromptEmbeddings>(*RowsOfTable(embedded));
      rows->runs = runs;
      steps[0].step.admitted.back().embeddings = rows;
    }
    steps[1].Run(1, 3, 3, {}, false);
    steps[2].Run(1, 6, 1, {}, true);
    for (const size_t step : {3, 4}) {
      steps[step].Run(0, static_cast<int>(step) - 1, 1, {}, true);
      steps[step].Run(1, static_cast<int>(step) + 4, 1, {}, true);
    }
    std::vector<TokenId>& sampled = outputs.emplace_back();
    for (StepBuilder& step : steps) {
      ModelOutput result;
      REQUIRE(engine.runner().Execute(step.step, &result).ok());
      sampled.insert(sampled.end(), result.sampled_token_ids.begin(),
                     result.sampled_token_ids.end());
    }
  }
  CHECK(outputs[0] == outputs[1]);
  CHECK(outputs[0] == outputs[2]);
}

// The device's sampler counts every token id of a prompt, and zeros stand for embeddings.
TEST_CASE("model runner: the host samples where penalties must not see embeddings") {
  const ExecutorLimits limits = EngineDriver(TinyOptions()).runner().limits();
  InputBatch batch(limits, {.vocab_size = limits.vocab_size}, /*has_device_sampler=*/true);
  wire::SamplingParams greedy = GreedyParams(4), penalized = greedy;
  penalized.repetition_penalty = 2;
  const RequestId id = "a";
  const std::vector<TokenId> zeros = {0, 0, 0};
  const auto on_device = [&](int slot, const wire::SamplingParams& params, bool embedded) {
    AdmittedRequest request = {0, &id, &params, nullptr, zeros, 3};
    if (embedded) request.embeddings = RowsOfTable({5, 6, 7});
    batch.Admit(RequestSlot{slot}, request, 0);
    return batch.row(RequestSlot{slot}).samples_on_device;
  };
  CHECK(on_device(0, greedy, false));
  CHECK(on_device(1, penalized, false));
  CHECK(on_device(2, greedy, true));
  CHECK_FALSE(on_device(3, penalized, true));
}

// Two steps in flight at a time, so that a mask is on its way while the one before is still used.
TEST_CASE("model runner: each step's token masks are its own, in graphs as well") {
  const bool on_host = GENERATE(false, true);  // the first request's samples
  CAPTURE(on_host);
  wire::SamplingParams greedy = GreedyParams(9), first_params = greedy;
  if (on_host) {
    first_params.bad_words_token_ids = {std::vector<TokenId>(kMaxDeviceWordTokens + 1, 5)};
  }
  first_params.logprobs = 0;
  const RequestId a = "a", b = "b";
  EngineDriver reference(TinyOptions()), device(OnDevice(TinyOptions()));
  const int64_t vocab_size = device.runner().limits().vocab_size;
  constexpr int kSteps = 6;
  std::deque<StepBuilder> steps(kSteps);
  for (int i = 0; i < kSteps; ++i) {
    StepBuilder& step = steps[static_cast<size_t>(i)];
    if (i == 0) {
      step.Admit(0, a, {5, 6, 7}, first_params, 3, {BlockId{1}}, true);
    } else {
      step.Run(0, 2 + i, 1, {}, true);
    }
    if (i != 3) step.Allow({40 + i}, vocab_size);
    if (i == 0) {
      step.Admit(1, b, {9, 8}, greedy, 2, {BlockId{2}}, true);
    } else {
      step.Run(1, 1 + i, 1, {}, true);
    }
    if (i % 2 == 1) step.Allow({7, 70 + i}, vocab_size);
  }
  std::vector<ModelOutput> expected(kSteps), results(kSteps);
  for (size_t i = 0; i < kSteps; ++i) {
    REQUIRE(reference.runner().Execute(steps[i].step, &expected[i]).ok());
    REQUIRE(device.runner().Submit(steps[i].step).ok());
    if (i > 0) REQUIRE(device.runner().Collect(&results[i - 1]).ok());
  }
  REQUIRE(device.runner().Collect(&results[kSteps - 1]).ok());
  for (size_t i = 0; i < kSteps; ++i) {
    CAPTURE(i);
    CHECK(results[i].sampled_token_ids == expected[i].sampled_token_ids);
    const auto step = static_cast<TokenId>(i);
    if (i != 3) CHECK(results[i].sampled_token_ids[0] == 40 + step);
    if (i % 2 == 1)
      CHECK(std::ranges::count(std::vector{7, 70 + step}, results[i].sampled_token_ids[1]) == 1);
    REQUIRE(results[i].results.size() == 1);
    if (i != 3) CHECK(results[i].results[0].logprobs->logprobs == std::vector<float>{0});
  }
  CHECK(device.runner().num_replays() == kSteps - 1);
}

TEST_CASE("model runner: forced tokens in one chunk give what they give one by one") {
  const bool on_device = GENERATE(false, true);
  CAPTURE(on_device);
  const wire::SamplingParams greedy = GreedyParams(9);
  const RequestId a = "a", b = "b";
  EngineDriver single(TinyOptions()), chunked(on_device ? OnDevice(TinyOptions()) : TinyOptions());
  const int64_t vocab_size = single.runner().limits().vocab_size;
  ModelOutput expected, result;
  for (int i = 0; i < 4; ++i) {
    StepBuilder step;
    if (i == 0) {
      step.Admit(0, a, {5, 6, 7}, greedy, 3, {BlockId{1}}, true);
    } else {
      step.Run(0, 2 + i, 1, {}, true);
    }
    if (i < 3) step.Allow({40 + i}, vocab_size);
    REQUIRE(single.runner().Execute(step.step, &expected).ok());
  }
  StepBuilder first, second, third;
  first.Admit(1, b, {9, 8}, greedy, 2, {BlockId{2}}, true);
  first.Admit(0, a, {5, 6, 7}, greedy, 3, {BlockId{1}}, true);
  first.Force(40, {41, 42}, vocab_size);
  REQUIRE(chunked.runner().Execute(first.step, &result).ok());
  CHECK(result.sampled_token_ids[1] == 40);
  second.Run(1, 2, 1, {}, true);
  second.Run(0, 3, 3, {}, true);
  REQUIRE(chunked.runner().Execute(second.step, &result).ok());
  CHECK(result.sampled_token_ids[1] == expected.sampled_token_ids[0]);
  StepBuilder last;
  last.Run(0, 6, 1, {}, true);
  REQUIRE(single.runner().Execute(last.step, &expected).ok());
  third.Run(0, 6, 1, {}, true);
  REQUIRE(chunked.runner().Execute(third.step, &result).ok());
  CHECK(result.sampled_token_ids == expected.sampled_token_ids);
}

TEST_CASE("model runner: a token mask that allows nothing ends that request only") {
  const wire::SamplingParams greedy = GreedyParams(4);
  const RequestId a = "a", b = "b";
  const bool on_device = GENERATE(false, true);
  CAPTURE(on_device);
  EngineDriver engine(on_device ? OnDevice(TinyOptions()) : TinyOptions());
  StepBuilder step;
  step.Admit(0, a, {5, 6, 7}, greedy, 3, {BlockId{1}}, true);
  step.Allow({}, engine.runner().limits().vocab_size);
  step.Admit(1, b, {9, 8}, greedy, 2, {BlockId{2}}, true);
  ModelOutput result;
  REQUIRE(engine.runner().Execute(step.step, &result).ok());
  REQUIRE(result.results.size() == 1);
  CHECK(result.results[0].request_idx == 0);
  CHECK_THAT(result.results[0].status.message(), Contains("no token is left"));
  CHECK(result.sampled_token_ids[0] == kNoToken);
  CHECK(result.sampled_token_ids[1] != kNoToken);
}

TEST_CASE("model runner: a mixture's step waits for its experts' tokens only when they are many") {
  EngineDriverOptions options = TinyOptions();
  options.model_dir = TANDEM_GOLDEN_DIR "/models/qwen3_moe";  // 3 of 8 experts
  EngineDriverOptions on_device = OnDevice(options);
  on_device.max_num_batched_tokens = 90;
  EngineDriver reference(options), device(on_device);
  const wire::SamplingParams greedy = GreedyParams(4);
  const RequestId id = "a";
  for (const int num_tokens : {7, 90}) {
    CAPTURE(num_tokens);
    std::vector<TokenId> prompt;
    for (int i = 0; i < num_tokens; ++i) prompt.push_back(3 + 7 * i % 500);
    StepBuilder builder;
    if (num_tokens > 7) builder.step.freed_slots = {RequestSlot{0}};
    builder.Admit(0, id, prompt, greedy, num_tokens, {BlockId{1}, BlockId{2}, BlockId{3}}, true);
    ModelOutput expected, result;
    REQUIRE(reference.runner().Execute(builder.step, &expected).ok());
    const int64_t num_run = NumEmulatedKernels();
    REQUIRE(device.runner().Submit(builder.step).ok());
    CHECK((NumEmulatedKernels() > num_run) == (num_tokens > 7));
    REQUIRE(device.runner().Collect(&result).ok());
    CHECK(result.sampled_token_ids == expected.sampled_token_ids);
  }
}

TEST_CASE("model runner: a device out of memory at start is an error with advice") {
  // One with separate gates, and one with scratch memory for steps larger than decode steps.
  const std::string model = GENERATE("llama_tied", "mixtral");
  const DType dtype = GENERATE(DType::kF32, DType::kBf16);
  CAPTURE(model, DTypeName(dtype));
  int64_t num_failed = 0;
  for (;; ++num_failed) {
    CAPTURE(num_failed);
    EndEmulatedMemoryAfter(num_failed);
    const auto runner = StartOnDevice(model, dtype);
    EndEmulatedMemoryAfter(std::nullopt);
    if (runner.ok()) break;
    REQUIRE(runner.status().code() == StatusCode::kResourceExhausted);
    CHECK_THAT(runner.status().message(),
               Contains("lower --max-num-batched-tokens") || Contains("pinning"));
    REQUIRE(num_failed < 300);
  }
  CHECK(num_failed > 20);
}

TEST_CASE("model runner: no step allocates memory") {
  EngineDriver engine(OnDevice(TinyOptions()));
  EndEmulatedMemoryAfter(0);
  for (int i = 0; i < 4; ++i) {
    engine.Add(std::to_string(i), std::vector<TokenId>(static_cast<size_t>(30 + i), 5 + i),
               GreedyParams(3 + i));
  }
  engine.RunAll();
  EndEmulatedMemoryAfter(std::nullopt);
  CHECK(engine.transcript("3").token_ids.size() == 6);
}

TEST_CASE("model runner: an op that finds no scratch memory fails its step") {
  EngineDriverOptions options = OnDevice(TinyOptions());
  options.graph_sizes = {};  // no first steps, which would allocate enough
  EngineDriver engine(options);
  const wire::SamplingParams params = GreedyParams(4);
  const RequestId id = "a";
  StepBuilder step;
  step.Admit(0, id, std::vector<TokenId>(30, 5), params, 30, {BlockId{1}}, true);
  EndEmulatedMemoryAfter(0);
  const Status status = engine.runner().Submit(step.step);
  EndEmulatedMemoryAfter(std::nullopt);
  CHECK(status.code() == StatusCode::kResourceExhausted);
  CHECK_THAT(status.message(), Contains("lower --max-num-batched-tokens"));
}

// The emulated device's clock counts kernels.
TEST_CASE("model runner: the device's clock separates steps from the time between them") {
  const bool has_graphs = GENERATE(true, false);
  CAPTURE(has_graphs);
  EngineDriverOptions options = OnDevice(TinyOptions());
  if (!has_graphs) options.graph_sizes = {};
  EngineDriver engine(options);
  ModelRunner& runner = engine.runner();
  CHECK(runner.device_times().num_steps == 0);
  const wire::SamplingParams params = GreedyParams(9);
  wire::SamplingParams penalized = params;
  penalized.repetition_penalty = 1.5;  // its prompt is counted by a kernel before its first step
  const RequestId a = "a", b = "b";
  StepBuilder first, second, third, fourth;
  first.Admit(0, a, {5, 6, 7}, params, 3, {BlockId{1}}, true);
  second.Run(0, 3, 1, {}, true);
  third.Run(0, 4, 1, {}, true);
  third.Admit(1, b, {9, 8}, penalized, 2, {BlockId{2}}, true);
  fourth.Run(0, 5, 1, {}, true);
  fourth.Run(1, 2, 1, {}, true);
  ModelOutput result;
  const auto run = [&](const StepBuilder& step) {
    const int64_t before = NumEmulatedKernels();
    REQUIRE(runner.Execute(step.step, &result).ok());
    return static_cast<double>(NumEmulatedKernels() - before) / 1e3;
  };
  run(first);
  CHECK(runner.device_times().num_steps == 0);
  runner.StartClock();
  run(second);
  CHECK(runner.device_times().num_steps == 0);  // nothing to compare with
  constexpr double kKernel = 1e-3;
  double all = run(third);
  CHECK(runner.device_times().num_steps == 1);
  CHECK(runner.device_times().idle_seconds == Approx(kKernel));
  CHECK(runner.device_times().busy_seconds == Approx(all - kKernel));
  all += run(fourth);
  CHECK(runner.device_times().num_steps == 2);
  CHECK(runner.device_times().idle_seconds == Approx(kKernel));
  CHECK(runner.device_times().busy_seconds == Approx(all - kKernel));
  CHECK(runner.device_times().idle_share() == Approx(kKernel / all));
  CHECK((runner.num_replays() > 0) == has_graphs);
  runner.StartClock();
  CHECK(runner.device_times().num_steps == 0);
}

TEST_CASE("model runner: two steps in flight are timed in their order") {
  EngineDriver engine(OnDevice(TinyOptions()));
  ModelRunner& runner = engine.runner();
  const wire::SamplingParams params = GreedyParams(30);
  const RequestId id = "a";
  StepBuilder first;
  first.Admit(0, id, {5, 6, 7}, params, 3, {BlockId{1}}, true);
  ModelOutput result;
  runner.StartClock();
  REQUIRE(runner.Submit(first.step).ok());
  constexpr int kSteps = 12;
  int64_t after_first = 0;
  for (int i = 0; i < kSteps; ++i) {
    StepBuilder next;
    next.Run(0, 3 + i, 1, {}, true);
    REQUIRE(runner.Submit(next.step).ok());
    REQUIRE(runner.Collect(&result).ok());
    if (i == 0) after_first = NumEmulatedKernels();
    CHECK(runner.device_times().num_steps == i);
  }
  REQUIRE(runner.Collect(&result).ok());
  CHECK(runner.device_times().num_steps == kSteps);
  CHECK(runner.device_times().idle_seconds == 0);
  CHECK(runner.device_times().busy_seconds ==
        Approx(static_cast<double>(NumEmulatedKernels() - after_first) / 1e3));
}

TEST_CASE("model runner: a chunk that does not reach the last token samples none") {
  EngineDriver engine(TinyOptions());
  const wire::SamplingParams params = GreedyParams(4);
  const RequestId id = "a";
  std::vector<TokenId> prompt;
  for (int i = 0; i < 40; ++i) prompt.push_back(3 + i);
  ModelOutput result;
  StepBuilder first;
  first.Admit(0, id, prompt, params, 17, {BlockId{1}}, false);
  REQUIRE(engine.runner().Execute(first.step, &result).ok());
  CHECK(result.sampled_token_ids == std::vector<TokenId>{kNoToken});
  StepBuilder second;
  second.Run(0, 17, 23, {BlockId{2}}, true);
  REQUIRE(engine.runner().Execute(second.step, &result).ok());
  CHECK(result.sampled_token_ids[0] != kNoToken);
}

TEST_CASE("model runner: too many logprobs end that request only") {
  // The driver's runner has no limit on logprobs, so this one is made here.
  const auto config = ReadModelConfig(TinyOptions().model_dir);
  const auto weights = OpenSafetensors(TinyOptions().model_dir);
  ModelRunnerOptions options;
  options.limits = {.num_blocks = 8,
                    .block_size = kBlockSize,
                    .max_num_seqs = 2,
                    .max_num_batched_tokens = 64,
                    .max_model_len = 64,
                    .vocab_size = static_cast<int32_t>(config->vocab_size)};
  options.max_logprobs = 5;
  auto backend = MakeReferenceBackend();
  auto model = LoadModel({*config, ModelLimitsOf(options.limits), **weights, *backend});
  REQUIRE(model.ok());
  auto runner = ModelRunner::Create(std::move(backend), *std::move(model), *config, options);
  REQUIRE(runner.ok());
  wire::SamplingParams greedy = GreedyParams(4), greedy_with_logprobs = greedy;
  greedy.logprobs = 5;
  greedy_with_logprobs.logprobs = 6;
  const RequestId a = "a", b = "b";
  StepBuilder step;
  step.Admit(0, a, {5, 6}, greedy_with_logprobs, 2, {BlockId{1}}, true);
  step.Admit(1, b, {5, 6}, greedy, 2, {BlockId{2}}, true);
  ModelOutput result;
  REQUIRE((*runner)->Execute(step.step, &result).ok());
  REQUIRE(result.results.size() == 2);
  CHECK(result.results[0].request_idx == 0);
  CHECK_THAT(result.results[0].status.message(), Contains("logprobs is 6"));
  CHECK(result.sampled_token_ids[0] == kNoToken);
  CHECK(result.results[1].status.ok());
  REQUIRE(result.results[1].logprobs);
  CHECK(result.results[1].logprobs->num_columns == 6);
}

// The folder's weights with NaN in the embedding of one token.
class PoisonedWeights final : public Weights {
 public:
  PoisonedWeights(Weights* real, TokenId poisoned) : real_(real), poisoned_(poisoned) {}
  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    StatusOr<WeightTensor> tensor = real_->Get(name, rows, columns);
    if (name != "model.embed_tokens.weight" || !tensor.ok()) return tensor;
    const auto* begin = static_cast<const std::byte*>(tensor->view().data);
    std::vector<std::byte> copy(begin, begin + tensor->view().NumBytes());
    auto* values = reinterpret_cast<Bf16*>(copy.data());
    for (int64_t i = 0; i < columns; ++i) {
      values[poisoned_ * columns + i] = ToBf16(std::numeric_limits<float>::quiet_NaN());
    }
    return WeightTensor(tensor->view(), std::move(copy));
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                      int64_t rows, int64_t columns) override {
    return real_->GetFromStack(name, index, count, rows, columns);
  }
  bool Has(std::string_view name) const override { return real_->Has(name); }

 private:
  Weights* real_;
  TokenId poisoned_;
};

TEST_CASE("model runner: NaN logits end their request with an error, and no other") {
  EngineDriverOptions options = TinyOptions();
  // Models whose head is not the embedding. In a mixture, tokens share only experts.
  const std::string model = GENERATE("llama_plain", "mixtral", "qwen3_moe");
  CAPTURE(model);
  options.model_dir = TANDEM_GOLDEN_DIR "/models/" + model;
  const auto real = OpenSafetensors(options.model_dir);
  REQUIRE(real.ok());
  PoisonedWeights poisoned(real->get(), 7);
  const std::vector<TokenId> good = {5, 6, 8, 9};
  EngineDriver clean(options);
  clean.Add("good", good, GreedyParams(10));
  clean.RunAll();
  options.weights = &poisoned;
  if (GENERATE(false, true)) options = OnDevice(options);
  EngineDriver engine(options);
  engine.Add("bad", {5, 7}, GreedyParams(10));
  engine.Add("good", good, GreedyParams(10));
  engine.RunAll();
  CHECK_THAT(engine.transcript("bad").error, Contains("not finite"));
  CHECK(engine.transcript("bad").token_ids.empty());
  const auto expected = clean.transcript("good").token_ids;
  const bool drew_poison = std::find(expected.begin(), expected.end(), 7) != expected.end();
  REQUIRE_FALSE(drew_poison);
  CHECK(engine.transcript("good").token_ids == expected);
}

TEST_CASE("model runner: min_tokens keeps stop ids out until enough tokens are there") {
  const bool on_device = GENERATE(false, true);
  CAPTURE(on_device);
  EngineDriver engine(on_device ? OnDevice(TinyOptions()) : TinyOptions());
  engine.Add("free", {5, 6}, GreedyParams(6));
  engine.RunAll();
  const std::vector<TokenId> drawn = engine.transcript("free").token_ids;
  REQUIRE(drawn.size() == 6);
  wire::SamplingParams params = GreedyParams(6);
  params.stop_token_ids = {drawn[0]};
  params.all_stop_token_ids = {drawn[0]};
  engine.Add("stopped", {5, 6}, params);
  params.min_tokens = 4;
  params.logit_bias = {{drawn[0], 100.0}};  // sampled as soon as it may be
  engine.Add("kept", {5, 6}, params);
  engine.RunAll();
  CHECK(engine.transcript("stopped").token_ids.size() == 1);
  const std::vector<TokenId>& kept = engine.transcript("kept").token_ids;
  REQUIRE(kept.size() == 5);
  for (size_t i = 0; i < 4; ++i) CHECK(kept[i] != drawn[0]);
}

}  // namespace
}  // namespace tandem
