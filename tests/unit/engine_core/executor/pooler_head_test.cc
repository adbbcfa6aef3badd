#include "engine_core/executor/pooler_head.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/files/adapter_folder.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::string BytesOfFloats(const std::vector<float>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
}

// Of the state {1.5, 0.5}, through one dense layer whose sums are 0.75 and -0.75.
std::vector<float> ThroughDense(DenseCurve curve, bool has_residual, int64_t rows = 2,
                                bool has_unit_input = false) {
  const std::vector<float> weight = {1, -2, 0.5, 1}, residual = {10, 1, 0, 1};
  const std::vector<float> bias = {0.25, -2};
  const auto first = [&](const std::vector<float>& numbers, int64_t columns) {
    return BytesOfFloats({numbers.begin(), numbers.begin() + rows * columns});
  };
  const TempFolder folder;
  folder.Write("model.safetensors",
               SafetensorsBytes({{"linear.weight", {rows, 2}, "F32", first(weight, 2)},
                                 {"linear.bias", {rows}, "F32", first(bias, 1)},
                                 {"residual.weight", {rows, 2}, "F32", first(residual, 2)}}));
  PoolerConfig config;
  config.dense = {{.folder = ".",
                   .in_features = 2,
                   .out_features = rows,
                   .curve = curve,
                   .has_residual = has_residual,
                   .has_unit_input = has_unit_input}};
  ModelConfig model;
  model.hidden_size = 2;
  const auto head = PoolerHead::Load(folder.path(), model, config, nullptr);
  INFO(head.status().message());
  REQUIRE(head.ok());
  return head->Apply({1.5F, 0.5F}, 0, /*use_activation=*/false);
}

TEST_CASE("dense layers: torch's activations, then the input where it is added") {
  // Of torch 2.13 in float64.
  for (const auto& [curve, expected] :
       {std::pair{DenseCurve::kNone, std::vector<float>{0.75F, -0.75F}},
        std::pair{DenseCurve::kTanh, std::vector<float>{0.6351489523872873F, -0.6351489523872873F}},
        std::pair{DenseCurve::kRelu, std::vector<float>{0.75F, 0}},
        std::pair{DenseCurve::kGelu,
                  std::vector<float>{0.5800294857173489F, -0.16997051428265111F}},
        std::pair{DenseCurve::kSilu,
                  std::vector<float>{0.5093840243815447F, -0.24061597561845527F}},
        std::pair{DenseCurve::kSigmoid,
                  std::vector<float>{0.679178699175393F, 0.320821300824607F}}}) {
    CAPTURE(static_cast<int>(curve));
    const std::vector<float> values = ThroughDense(curve, false);
    const std::vector<float> sums = ThroughDense(curve, true);
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(values[i] == Approx(expected[i]));
      CHECK(sums[i] == Approx(expected[i] + (i == 0 ? 1.5F : 0.5F)));
    }
  }
  // Of another size the input is multiplied by a matrix: 10 * 1.5 + 0.5.
  CHECK(ThroughDense(DenseCurve::kRelu, true, 1) == std::vector<float>{16.25F});
}

TEST_CASE("dense layers: a Normalize before one is of its input, for the residual, too") {
  const double length = std::sqrt(2.5), x = 1.5 / length, y = 0.5 / length;
  const std::vector<float> values = ThroughDense(DenseCurve::kNone, true, 2, true);
  CHECK(values[0] == Approx(x - 2 * y + 0.25 + x));
  CHECK(values[1] == Approx(0.5 * x + y - 2 + y));
}

}  // namespace
}  // namespace tandem
