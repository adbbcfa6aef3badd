// Checkpoints that come quantized, kept in codes on an emulated device: logits are as near HF's
// over the same weights as those of weights in bfloat16.

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/models/registry.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/engine/golden_logits.h"
#include "tests/support/files/golden_folders.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

TEST_CASE("CUDA: logits of quantized checkpoints in codes") {
  int num_models = 0;
  for (const std::string& folder : GoldenFolders(TANDEM_GOLDEN_DIR, "quantized", "goldens.json")) {
    const bool is_gguf = std::filesystem::exists(folder + "/model.gguf");
    const std::string model = is_gguf ? folder + "/model.gguf" : folder;
    const GoldenLogits logits(folder);
    double worst = 0, allowed = 0;
    const json goldens = ReadGoldens(folder);
    REQUIRE(!goldens["prompts"].empty());
    for (const json& prompt : goldens["prompts"]) {
      const auto backend = MakeEmulatedCudaBackend({.num_threads = 1}).value();
      const auto rows =
          AllLogits(ReadModelConfig(model), model, 256, backend.get(),
                    prompt["prompt_ids"].get<std::vector<int32_t>>(), WeightFormatsOf("auto"));
      const std::vector<float> expected =
          logits.Get("f32." + std::to_string(prompt["index"].get<int>()));
      worst = std::max(worst, MaxDifference(rows.back(), expected.data()));
      allowed = std::max(allowed, 2 * prompt["bf16_max_abs_diff"].get<double>() + 0.05);
    }
    CAPTURE(folder, worst, allowed);
    CHECK(worst <= allowed);
    ++num_models;
  }
  CHECK(num_models > 0);
}

}  // namespace
}  // namespace tandem
