// Models whose layers keep a state over the cuda backend on an emulated device: greedy text against
// the one recorded from HF transformers, and against the cpu backend's where prompts come in chunks
// and share what they begin with.

#include <string>

#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/greedy_text.h"
#include "tests/support/files/golden_folders.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

EngineDriverOptions OnDevice(DType dtype) {
  EngineDriverOptions options;
  options.dtype = dtype;
  options.max_num_batched_tokens = 24;
  options.make_backend = [dtype] {
    return MakeEmulatedCudaBackend({.dtype = dtype, .num_threads = 1}).value();
  };
  return options;
}

std::string FolderOf(const std::string& model) { return TANDEM_GOLDEN_DIR "/models/" + model; }

constexpr int kNumRequests = 5;
constexpr int kSharedTokens = 64;  // two blocks

// Prompts that all begin with the same two blocks, and decode with others beside them.
std::vector<Transcript> RunSharing(const std::string& model, bool is_cuda, int32_t step_tokens) {
  EngineDriverOptions options = is_cuda ? OnDevice(DType::kF32) : EngineDriverOptions();
  options.model_dir = FolderOf(model);
  options.max_num_batched_tokens = step_tokens;
  if (is_cuda) {
    options.graph_sizes = {1, 2, 4, 8};
    options.async_scheduling = true;
  }
  std::vector<TestRequest> requests;
  for (int i = 0; i < kNumRequests; ++i) {
    TestRequest request;
    request.id = std::to_string(i);
    request.params = GreedyParams(3 + i);
    for (int t = 0; t < kSharedTokens + 1 + 8 * (i % 3); ++t) {
      request.prompt.push_back(3 + (11 * t + (t < kSharedTokens ? 0 : 7 * i)) % 90);
    }
    request.arrival_step = i < 3 ? 0 : 6 + i;
    requests.push_back(std::move(request));
  }
  EngineDriver engine(options);
  RunTogether(&engine, requests);
  if (is_cuda) CHECK(engine.runner().num_replays() > 0);
  std::vector<Transcript> transcripts;
  for (const TestRequest& request : requests) transcripts.push_back(engine.transcript(request.id));
  return transcripts;
}

}  // namespace

TEST_CASE("emulated cuda: greedy text of models with states") {
  CheckGreedyText(OnDevice(DType::kF32), FolderOf("qwen3_5_text"));
  CheckGreedyText(OnDevice(DType::kF32), FolderOf("lfm2"));
  CheckGreedyText(OnDevice(DType::kBf16), FolderOf("qwen3_5_text"));
}

TEST_CASE("emulated cuda: greedy text of the larger set's models with states") {
  const auto goldens = WholeGoldens();
  if (!goldens) return;
  for (const char* model : {"qwen3_next", "qwen3_5_moe", "falcon_h1", "granitemoehybrid", "jamba",
                            "kimi_linear", "mamba2", "nemotron_h"}) {
    CheckGreedyText(OnDevice(DType::kF32), *goldens + "/models2/" + model);
  }
}

// In steps of 256 tokens a request goes on from what another one leaves in the same step.
TEST_CASE("emulated cuda: prompts in chunks and shared ones yield the cpu's tokens from states") {
  for (const int32_t step_tokens : {20, 256}) {
    const std::vector<Transcript> cpu = RunSharing("qwen3_5_text", false, step_tokens);
    const std::vector<Transcript> cuda = RunSharing("qwen3_5_text", true, step_tokens);
    for (size_t i = 0; i < cpu.size(); ++i) {
      CAPTURE(step_tokens, i);
      CHECK(cuda[i].error.empty());
      CHECK(cuda[i].token_ids.size() == 3 + i);
      CHECK(cuda[i].token_ids == cpu[i].token_ids);
      if (i > 0) CHECK(cuda[i].num_cached_tokens == kSharedTokens);
    }
  }
}

}  // namespace tandem
