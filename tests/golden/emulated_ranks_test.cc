// Whole models split over ranks with an emulated device each, the tests' own library in NCCL's
// place: the greedy text recorded from HF transformers, and captured and overlapping steps against
// those of one device. Ranks are threads here.

#include <string>
#include <vector>

#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/greedy_text.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/rank_devices.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

const std::string kModels = TANDEM_GOLDEN_DIR "/models/";

EngineDriverOptions OnDevices(int num_devices, DType dtype, bool uses_peers = true) {
  EngineDriverOptions options;
  options.dtype = dtype;
  options.max_num_batched_tokens = 24;
  options.ranks = {.tensor = num_devices};
  options.make_rank_backend = [dtype, uses_peers](int rank) {
    return MakeEmulatedCudaBackend(RankDevices::OptionsOf(rank, dtype, uses_peers)).value();
  };
  return options;
}

TEST_CASE("emulated ranks: greedy text of the golden models over two devices") {
  const RankDevices devices;
  if (!devices.are_at_least(2)) return;
  for (const char* model :
       {"llama_plain", "gemma2", "gpt2", "mixtral", "olmo2", "phi3_partial_rotary", "qwen2",
        "qwen3", "deepseek_v2", "qwen3_moe", "lfm2", "qwen3_5_text"}) {
    CheckGreedyText(OnDevices(2, DType::kF32), kModels + model);
  }
  CheckGreedyText(OnDevices(2, DType::kBf16), kModels + "llama_plain");
}

TEST_CASE("emulated ranks: all exchanges by NCCL") {
  const RankDevices devices;
  if (!devices.are_at_least(2)) return;
  for (const char* model : {"gemma2", "mixtral", "olmo2", "phi3_partial_rotary", "qwen3_5_text"}) {
    CheckGreedyText(OnDevices(2, DType::kF32, /*uses_peers=*/false), kModels + model);
  }
}

TEST_CASE("emulated ranks: four devices, more than there are key-value heads") {
  const RankDevices devices;
  if (!devices.are_at_least(4)) return;
  for (const char* model : {"llama_plain", "olmo2"}) {
    CheckGreedyText(OnDevices(4, DType::kF32), kModels + model);
  }
}

TEST_CASE("emulated ranks: greedy text of the larger set's models over two devices") {
  const auto goldens = WholeGoldens();
  if (!goldens) return;
  const RankDevices devices;
  if (!devices.are_at_least(2)) return;
  for (const char* model : {"cohere2", "falcon", "glm4_moe", "gpt_neox", "gpt_oss", "llama4_text",
                            "olmo3", "opt", "phi", "phimoe", "starcoder2", "granitemoehybrid",
                            "jamba", "kimi_linear", "mamba2", "nemotron_h", "qwen3_next"}) {
    CheckGreedyText(OnDevices(2, DType::kF32), *goldens + "/models2/" + model);
  }
}

struct Load {
  std::vector<Transcript> transcripts;
  int64_t num_replays = 0;
  int64_t num_overlapped = 0;
};

// Requests of different lengths that come and go, drawn with seeds and greedily.
Load RunLoad(const std::string& model, int num_devices, std::vector<int64_t> graph_sizes) {
  EngineDriverOptions options = OnDevices(num_devices, DType::kF32);
  options.model_dir = kModels + model;
  options.block_size = 16;
  options.num_blocks = 8;
  options.max_num_seqs = 6;
  options.max_model_len = 64;
  options.async_scheduling = !graph_sizes.empty();
  options.graph_sizes = std::move(graph_sizes);
  Load load;
  EngineDriver engine(options);
  constexpr int kNumRequests = 8;
  for (int i = 0; i < kNumRequests; ++i) {
    std::vector<TokenId> prompt;
    for (int t = 0; t < 3 + 5 * (i % 4); ++t) prompt.push_back(3 + (7 * i + 11 * t) % 90);
    wire::SamplingParams params = GreedyParams(4 + 3 * i);
    params.logprobs = 2;
    if (i % 3 == 1) {
      params.temperature = 0.9;
      params.seed = i;
    }
    if (i == 5) params.prompt_logprobs = 2;
    engine.Add(std::to_string(i), std::move(prompt), params);
  }
  engine.RunAll();
  for (int i = 0; i < kNumRequests; ++i) {
    load.transcripts.push_back(engine.transcript(std::to_string(i)));
  }
  load.num_replays = engine.runner().num_replays();
  load.num_overlapped = engine.runner().num_overlapped();
  return load;
}

// Tokens that one device has sampled are inputs of the others, also where no host has seen them.
TEST_CASE("emulated ranks: captured and overlapping steps give the tokens of one device") {
  const RankDevices devices;
  if (!devices.are_at_least(2)) return;
  for (const char* model : {"qwen3", "mixtral", "qwen3_5_text"}) {
    CAPTURE(model);
    const Load one = RunLoad(model, 1, {});
    const Load eager = RunLoad(model, 2, {});
    const Load captured = RunLoad(model, 2, {1, 2, 4, 6});
    CHECK(eager.num_replays == 0);
    CHECK(captured.num_replays > 10);
    CHECK(captured.num_overlapped > 10);
    for (size_t i = 0; i < one.transcripts.size(); ++i) {
      CAPTURE(i);
      for (const Load* load : {&eager, &captured}) {
        const Transcript &expected = one.transcripts[i], &got = load->transcripts[i];
        CHECK(got.error.empty());
        CHECK(got.token_ids.size() == 4 + 3 * i);
        CHECK(got.token_ids == expected.token_ids);
        REQUIRE(got.logprobs.size() == expected.logprobs.size());
        for (size_t row = 0; row < got.logprobs.size(); ++row) {
          CHECK(got.logprobs[row] == Approx(expected.logprobs[row]).margin(1e-3));
        }
        CHECK(got.prompt_logprobs.token_ids == expected.prompt_logprobs.token_ids);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
