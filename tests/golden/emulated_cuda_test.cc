// Whole models over the cuda backend on an emulated device, through scheduler and model runner,
// against the greedy text recorded from HF transformers (tests/golden/models), and seeded sampling
// against the cpu backend.

#include <string>

#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/greedy_text.h"
#include "tests/support/files/golden_folders.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int32_t kNumTokens = 6;

void CheckGreedyText(const std::string& model, DType dtype,
                     const std::string& models = TANDEM_GOLDEN_DIR "/models") {
  EngineDriverOptions options;
  options.dtype = dtype;
  options.max_num_batched_tokens = 24;
  options.make_backend = [dtype] {
    return MakeEmulatedCudaBackend({.dtype = dtype, .num_threads = 1}).value();
  };
  CheckGreedyText(options, models + "/" + model);
}

constexpr int32_t kManyLogprobs = kMaxDeviceLogprobs + 1;

// Requests of every kind, one that the device's sampler leaves to the host among them.
std::vector<wire::SamplingParams> MixedParams() {
  constexpr int kNumRequests = 10;
  std::vector<wire::SamplingParams> all;
  for (int i = 0; i < kNumRequests; ++i) {
    wire::SamplingParams params = GreedyParams(kNumTokens);
    params.temperature = i == 0 ? 0.0 : 0.9;
    params.seed = 100 + i;
    all.push_back(params);
  }
  all[1].top_k = 20;
  all[2].top_p = 0.8;
  all[2].logprobs = 3;
  all[3].min_p = 0.01;
  all[3].repetition_penalty = 1.3;
  all[3].frequency_penalty = 0.5;
  all[4].logit_bias = {{5, 4.0}, {9, -50.0}};
  all[4].min_tokens = 3;
  all[4].all_stop_token_ids = {1, 2};
  all[5].allowed_token_ids = {3, 5, 7, 11, 13, 17, 19, 23};
  all[5].presence_penalty = 1.0;
  all[5].logprobs = 0;
  all[6].bad_words_token_ids = {{7}, {5, 6}};
  all[6].repetition_penalty = 1.1;
  all[7].logprob_token_ids = {4, 8};
  all[7].logprobs = 2;
  all[8].prompt_logprobs = 2;
  all[9].logprobs = kManyLogprobs;
  return all;
}

void CheckSeededText(const std::string& model, LogprobsMode mode) {
  const std::vector<wire::SamplingParams> all = MixedParams();
  std::vector<std::vector<Transcript>> transcripts(2);
  for (const bool is_cuda : {false, true}) {
    EngineDriverOptions options;
    options.model_dir = TANDEM_GOLDEN_DIR "/models/" + model;
    options.dtype = DType::kF32;
    options.max_num_batched_tokens = 24;
    options.max_num_seqs = 6;
    options.logprobs_mode = mode;
    if (is_cuda) {
      options.graph_sizes = {1, 2, 4, 6};
      options.async_scheduling = true;
      options.make_backend = [] {
        return MakeEmulatedCudaBackend({.dtype = DType::kF32, .num_threads = 1}).value();
      };
    }
    EngineDriver engine(options);
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<TokenId> prompt = {3, 4, 5, static_cast<TokenId>(6 + i)};
      // More rows of logits than are made at a time.
      while (all[i].prompt_logprobs && prompt.size() < 15) prompt.push_back(prompt.back() + 3);
      engine.Add(std::to_string(i), std::move(prompt), all[i]);
    }
    engine.RunAll();
    for (size_t i = 0; i < all.size(); ++i) {
      transcripts[is_cuda ? 1 : 0].push_back(engine.transcript(std::to_string(i)));
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(model, i);
    const Transcript& cpu = transcripts[0][i];
    const Transcript& cuda = transcripts[1][i];
    CHECK(cuda.error.empty());
    CHECK(cpu.token_ids.size() == kNumTokens);
    CHECK(cuda.token_ids == cpu.token_ids);
    REQUIRE(cuda.rows.size() == cpu.rows.size());
    for (size_t row = 0; row < cuda.rows.size(); ++row) {
      CHECK(cuda.rows[row].token_ids == cpu.rows[row].token_ids);
      CHECK(cuda.rows[row].ranks == cpu.rows[row].ranks);
    }
    CHECK(cpu.prompt_logprobs.num_rows == (all[i].prompt_logprobs ? 14 : 0));
    CHECK(cuda.prompt_logprobs.token_ids == cpu.prompt_logprobs.token_ids);
    CHECK(cuda.prompt_logprobs.ranks == cpu.prompt_logprobs.ranks);
    REQUIRE(cuda.prompt_logprobs.logprobs.size() == cpu.prompt_logprobs.logprobs.size());
    for (size_t n = 0; n < cuda.prompt_logprobs.logprobs.size(); ++n) {
      CHECK(cuda.prompt_logprobs.logprobs[n] ==
            Approx(cpu.prompt_logprobs.logprobs[n]).margin(1e-3));
    }
    REQUIRE(cuda.logprobs.size() == cpu.logprobs.size());
    for (size_t row = 0; row < cuda.logprobs.size(); ++row) {
      CHECK(cuda.logprobs[row] == Approx(cpu.logprobs[row]).margin(1e-3));
    }
  }
}

struct Load {
  std::vector<std::vector<TokenId>> tokens;  // of each request
  int64_t num_replays = 0;
  int64_t num_overlapped = 0;
  int num_preemptions = 0;
};

constexpr int kAborted = 6;  // the request that is aborted in step kAbortStep
constexpr int kAbortStep = 9;

// Requests of different lengths that come and go, so that decode batches of most sizes are among
// the steps; blocks change hands between them.
Load RunLoad(const std::string& model, std::vector<int64_t> graph_sizes, bool async_scheduling) {
  EngineDriverOptions options;
  options.model_dir = TANDEM_GOLDEN_DIR "/models/" + model;
  options.max_num_batched_tokens = 24;
  options.block_size = 16;
  options.num_blocks = 8;
  options.max_num_seqs = 6;
  options.max_model_len = 64;
  options.graph_sizes = std::move(graph_sizes);
  options.async_scheduling = async_scheduling;
  options.make_backend = [] {
    return MakeEmulatedCudaBackend({.dtype = DType::kF32, .num_threads = 1}).value();
  };
  Load load;
  EngineDriver engine(options);
  constexpr int kNumRequests = 8;
  for (int i = 0; i < kNumRequests; ++i) {
    std::vector<TokenId> prompt;
    for (int t = 0; t < 3 + 5 * (i % 4); ++t) prompt.push_back(3 + (7 * i + 11 * t) % 90);
    wire::SamplingParams params = GreedyParams(4 + 3 * i);
    if (i % 3 == 1) {
      params.temperature = 0.9;
      params.seed = i;
    }
    engine.Add(std::to_string(i), std::move(prompt), params);
  }
  for (int step = 0; engine.Step(); ++step) {
    if (step == kAbortStep) engine.Abort(std::to_string(kAborted));
  }
  for (int i = 0; i < kNumRequests; ++i) {
    const Transcript& transcript = engine.transcript(std::to_string(i));
    CHECK(transcript.error.empty());
    load.num_preemptions += transcript.num_preemptions;
    load.tokens.push_back(transcript.token_ids);
  }
  load.num_replays = engine.runner().num_replays();
  load.num_overlapped = engine.runner().num_overlapped();
  return load;
}

}  // namespace

TEST_CASE("emulated cuda: seeded sampling gives the tokens of the cpu in float32") {
  CheckSeededText("llama_plain", LogprobsMode::kProcessedLogprobs);
  CheckSeededText("qwen3", LogprobsMode::kRawLogprobs);
}

TEST_CASE("emulated cuda: replayed decode steps yield the tokens of eager ones") {
  for (const char* model : {"qwen3", "gemma2", "mixtral", "qwen3_moe", "qwen3_5_text"}) {
    CAPTURE(model);
    const Load eager = RunLoad(model, {}, false);
    const Load replayed = RunLoad(model, {1, 2, 4, 6}, false);
    const Load async = RunLoad(model, {1, 2, 4, 6}, true);
    CHECK(eager.num_replays == 0);
    CHECK(eager.num_overlapped == 0);
    CHECK(replayed.num_replays > 10);
    CHECK(async.num_replays > 10);
    CHECK(async.num_overlapped > 10);
    CHECK(async.num_preemptions > 0);
    for (size_t i = 0; i < eager.tokens.size(); ++i) {
      CAPTURE(i);
      if (i == kAborted) continue;
      CHECK(eager.tokens[i].size() == 4 + 3 * i);
      CHECK(replayed.tokens[i] == eager.tokens[i]);
      CHECK(async.tokens[i] == eager.tokens[i]);
    }
  }
}

// Layers that no model above has.
TEST_CASE("emulated cuda: greedy text of the larger set's models in float32") {
  const auto goldens = WholeGoldens();
  if (!goldens) return;
  for (const char* model :
       {"bloom", "cohere2", "ernie4_5_moe", "exaone4", "falcon", "glm4", "glm4_moe", "gpt_neox",
        "gpt_oss", "granite", "hunyuan_v1_dense", "llama4_text", "minimax_m2", "olmo3", "opt",
        "phi", "phimoe", "smollm3", "starcoder2"}) {
    CheckGreedyText(model, DType::kF32, *goldens + "/models2");
  }
}

TEST_CASE("emulated cuda: greedy text of the golden models in float32") {
  for (const char* model : {"llama_plain", "gemma2", "gpt2", "mistral_swa", "mixtral", "olmo2",
                            "phi3_partial_rotary", "qwen2", "qwen3", "deepseek_v2"}) {
    CheckGreedyText(model, DType::kF32);
  }
}

TEST_CASE("emulated cuda: greedy text of the golden models in bfloat16") {
  for (const char* model : {"llama_bias_headdim", "gemma3_text", "qwen3_moe"}) {
    CheckGreedyText(model, DType::kBf16);
  }
}

}  // namespace tandem
