#include "engine_core/weights/loading_progress.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Tensors of any name, half a GiB each, which nobody reads.
class EndlessWeights final : public Weights {
 public:
  StatusOr<WeightTensor> Get(std::string_view /*name*/, int64_t rows, int64_t columns) override {
    return WeightTensor(Tensor(nullptr, DType::kF32, {rows, columns}), std::vector<std::byte>());
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t /*index*/, int64_t /*count*/,
                                      int64_t rows, int64_t columns) override {
    return Get(name, rows, columns);
  }
  bool Has(std::string_view name) const override { return name == "there"; }
};

TEST_CASE("loading progress: a report every five seconds") {
  ManualClock clock;
  std::vector<std::string> reports;
  EndlessWeights endless;
  const auto weights =
      WithProgress(&endless, {0, 10}, &clock, {.first_s = 5, .every_s = 5},
                   [&](const LoadingState& state) { reports.push_back(state.text); });
  const auto ask = [&](const char* name) { REQUIRE(weights->Get(name, 1 << 20, 128).ok()); };
  ask("model.embed_tokens.weight");
  clock.Advance(4);
  ask("model.layers.0.mlp.up_proj.weight");
  CHECK(reports.empty());
  clock.Advance(1);
  ask("model.layers.0.mlp.down_proj.weight");
  REQUIRE(reports.size() == 1);
  CHECK(reports[0] == "layer 1 of 10, 1.5 GiB read, 0.30 GiB/s");
  clock.Advance(4);
  ask("model.layers.1.mlp.up_proj.weight");
  clock.Advance(1);
  ask("model.layers.2.mlp.experts.7.up_proj.weight");
  REQUIRE(reports.size() == 2);
  CHECK(reports[1] == "layer 3 of 10, 2.5 GiB read, 0.25 GiB/s, 0:40 left");
  clock.Advance(60);
  ask("lm_head.weight");
  CHECK(reports.back() == "layer 3 of 10, 3.0 GiB read, 0.04 GiB/s, 4:40 left");
  const auto stage =
      WithProgress(&endless, {10, 10}, &clock, {.first_s = 5, .every_s = 5},
                   [&](const LoadingState& state) { reports.push_back(state.text); });
  clock.Advance(10);
  REQUIRE(stage->Get("model.layers.15.mlp.up_proj.weight", 1 << 20, 128).ok());
  CHECK(reports.back() == "layer 6 of 10, 0.5 GiB read, 0.05 GiB/s, 0:10 left");
  CHECK(weights->Has("there"));
  CHECK_FALSE(weights->Has("absent"));
}

TEST_CASE("loading progress: a bar is drawn from the first tensor on, five times a second") {
  ManualClock clock;
  std::vector<double> parts;
  EndlessWeights endless;
  const auto weights =
      WithProgress(&endless, {0, 4}, &clock, {.first_s = 0, .every_s = 0.2},
                   [&](const LoadingState& state) { parts.push_back(state.part); });
  for (const char* name : {"model.embed_tokens.weight", "model.layers.0.a", "model.layers.1.a",
                           "model.layers.2.a", "model.layers.3.a"}) {
    REQUIRE(weights->Get(name, 1, 1).ok());
    clock.Advance(0.125);
  }
  CHECK(parts == std::vector<double>{0, 0.25, 0.75});
}

}  // namespace
}  // namespace tandem
