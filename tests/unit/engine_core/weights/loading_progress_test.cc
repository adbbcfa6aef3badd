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
  const auto weights = WithProgress(std::make_unique<EndlessWeights>(), {0, 10}, &clock,
                                    [&](const std::string& text) { reports.push_back(text); });
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
  const auto stage = WithProgress(std::make_unique<EndlessWeights>(), {10, 10}, &clock,
                                  [&](const std::string& text) { reports.push_back(text); });
  clock.Advance(10);
  REQUIRE(stage->Get("model.layers.15.mlp.up_proj.weight", 1 << 20, 128).ok());
  CHECK(reports.back() == "layer 6 of 10, 0.5 GiB read, 0.05 GiB/s, 0:10 left");
  CHECK(weights->Has("there"));
  CHECK_FALSE(weights->Has("absent"));
}

}  // namespace
}  // namespace tandem
