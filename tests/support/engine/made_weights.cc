#include "tests/support/engine/made_weights.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/random.h"

namespace tandem {
namespace {

class MadeWeights final : public Weights {
 public:
  explicit MadeWeights(uint64_t seed) : seed_(seed) {}

  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    uint64_t key = seed_;
    for (const char c : name) key = MixBits(key ^ static_cast<unsigned char>(c));
    const bool is_norm = rows == 0 || name.find("norm") != std::string_view::npos;
    const int64_t count = std::max<int64_t>(rows, 1) * columns;
    std::vector<std::byte> memory(static_cast<size_t>(count) * sizeof(Bf16));
    auto* values = reinterpret_cast<Bf16*>(memory.data());
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t bits = MixBits(key + static_cast<uint64_t>(i));
      const float level = static_cast<float>(bits & 0xff) - 128;
      values[i] = ToBf16(is_norm ? (256 + level / 2) / 256 : level / 4 / 128);
    }
    const Tensor view = rows == 0 ? Tensor(nullptr, DType::kBf16, {columns})
                                  : Tensor(nullptr, DType::kBf16, {rows, columns});
    return WeightTensor(view, std::move(memory));
  }

  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t /*count*/,
                                      int64_t rows, int64_t columns) override {
    return Get(std::string(name) + "." + std::to_string(index), rows, columns);
  }

  bool Has(std::string_view /*name*/) const override { return false; }

 private:
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<Weights> MakeMadeWeights(uint64_t seed) {
  return std::make_unique<MadeWeights>(seed);
}

}  // namespace tandem
