// Encoders and other models that pool over the cuda backend on an emulated device, through
// scheduler and model runner, against the numbers of transformers and sentence-transformers.

#include <string>

#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/engine/golden_logits.h"
#include "tests/support/engine/golden_pooling.h"
#include "tests/support/files/golden_folders.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

void CheckAll(DType dtype) {
  for (const std::string& folder : GoldenFolders(TANDEM_GOLDEN_DIR, "embedding", "goldens.json")) {
    CAPTURE(folder);
    const nlohmann::json goldens = ReadGoldens(folder);
    EngineDriverOptions options = PooledOptionsOf(folder, goldens);
    options.dtype = dtype;
    options.make_backend = [dtype] {
      return MakeEmulatedCudaBackend({.dtype = dtype, .num_threads = 1}).value();
    };
    CheckPooled(options, goldens);
  }
}

TEST_CASE("emulated cuda: vectors and scores are those of the libraries in float32") {
  CheckAll(DType::kF32);
}

TEST_CASE("emulated cuda: vectors and scores are near those of the libraries in bfloat16") {
  CheckAll(DType::kBf16);
}

// The states of a step are read before the next one is submitted, and a mean is over all chunks.
TEST_CASE("emulated cuda: vectors of overlapped steps and of chunks are the same") {
  for (const std::string& folder : GoldenFolders(TANDEM_GOLDEN_DIR, "embedding", "goldens.json")) {
    // A decoder, and an encoder with windows.
    if (!folder.ends_with("/qwen3_embedding") && !folder.ends_with("/modernbert_cls")) continue;
    CAPTURE(folder);
    const nlohmann::json goldens = ReadGoldens(folder);
    EngineDriverOptions options = PooledOptionsOf(folder, goldens);
    options.dtype = DType::kF32;
    options.make_backend = [] {
      return MakeEmulatedCudaBackend({.dtype = DType::kF32, .num_threads = 1}).value();
    };
    const bool is_cut = !ReadModelConfig(folder, options.hf_overrides)->is_bidirectional;
    options.async_scheduling = true;
    options.max_num_seqs = 3;
    if (is_cut) options.max_num_batched_tokens = 7;
    CheckPooled(options, goldens);
  }
}

}  // namespace
}  // namespace tandem
