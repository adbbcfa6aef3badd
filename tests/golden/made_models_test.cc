// Small models whose weights both sides make up from the tensors' names, against HF's logits
// (made_models/make.py).

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/models/registry.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/golden_logits.h"
#include "tests/support/engine/made_weights.h"
#include "tests/support/gzip/gzip_lines.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

constexpr double kF32Tolerance = 1e-3;
// Of bfloat16: a rounded score may choose another expert.
constexpr double kBf16Tolerance = 1.5;
constexpr double kOtherKeys = 3;  // or other keys; measured: 2.5

json ReadModels() { return ReadGzipJson(TANDEM_GOLDEN_DIR "/made_models/models.json"); }

std::vector<float> EveryNth(const std::vector<float>& row, size_t stride) {
  std::vector<float> some;
  for (size_t i = 0; i < row.size(); i += stride) some.push_back(row[i]);
  return some;
}

void CheckLogits(bool reference, DType dtype, double tolerance) {
  const json models = ReadModels();
  for (const json& one : models["cases"]) {
    CAPTURE(one["name"].get<std::string>());
    const auto config = ParseModelConfig(one["config"].dump(), "");
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    const auto weights = MakeMadeWeights(models["seed"]);
    const auto backend = MakeTestBackend(reference, dtype, 1);
    for (const json& prompt : one["prompts"]) {
      const auto rows = AllLogits(*config, weights.get(), 256, backend.get(),
                                  prompt["prompt_ids"].get<std::vector<int32_t>>());
      const auto expected = prompt["logits"].get<std::vector<float>>();
      const std::vector<float> got = EveryNth(rows.back(), models["stride"]);
      REQUIRE(got.size() == expected.size());
      const bool chooses_keys = config->index.dim > 0 && std::ssize(rows) > config->index.num_keys;
      const bool is_rough = dtype == DType::kBf16 && chooses_keys;
      CHECK(MaxDifference(got, expected.data()) <= (is_rough ? kOtherKeys : tolerance));
    }
  }
}

TEST_CASE("made up models: float32 logits on the reference backend are HF's") {
  CheckLogits(/*reference=*/true, DType::kF32, kF32Tolerance);
}

TEST_CASE("made up models: float32 logits on the cpu backend are HF's") {
  CheckLogits(/*reference=*/false, DType::kF32, kF32Tolerance);
}

TEST_CASE("made up models: bfloat16 logits on the cpu backend are near HF's") {
  CheckLogits(/*reference=*/false, DType::kBf16, kBf16Tolerance);
}

}  // namespace
}  // namespace tandem
