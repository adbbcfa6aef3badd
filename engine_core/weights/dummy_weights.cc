#include "engine_core/weights/dummy_weights.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"

namespace tandem {
namespace {

class FilledWeights final : public Weights {
 public:
  FilledWeights(uint64_t seed, FillWeights fill) : seed_(seed), fill_(std::move(fill)) {}

  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    uint64_t key = seed_;
    for (const char c : name) key = MixBits(key ^ static_cast<unsigned char>(c));
    const auto count = static_cast<size_t>(std::max<int64_t>(rows, 1) * columns);
    std::vector<std::byte> memory(count * sizeof(Bf16));
    fill_(key, name, /*is_vector=*/rows == 0, {reinterpret_cast<Bf16*>(memory.data()), count});
    const Tensor view = rows == 0 ? Tensor(nullptr, DType::kBf16, {columns})
                                  : Tensor(nullptr, DType::kBf16, {rows, columns});
    return WeightTensor(view, std::move(memory));
  }

  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t /*count*/,
                                      int64_t rows, int64_t columns) override {
    return Get(std::string(name) + "." + std::to_string(index), rows, columns);
  }

  // Get makes any name, but none of the alternative spellings exists.
  bool Has(std::string_view /*name*/) const override { return false; }

 private:
  uint64_t seed_;
  FillWeights fill_;
};

// 256 levels, eight from each mixed word, so that a billion weights take about a second.
void FillWithLevels(uint64_t key, std::string_view /*name*/, bool is_vector,
                    std::span<Bf16> values) {
  const float center = is_vector ? 1.0f : 0.0f, scale = is_vector ? 0.01f : 0.05f;
  std::array<Bf16, 256> levels;
  for (size_t i = 0; i < levels.size(); ++i) {
    levels[i] = ToBf16(center + scale * (static_cast<float>(i) / 127.5f - 1));
  }
  for (size_t i = 0; i < values.size(); i += 8) {
    const uint64_t bits = MixBits(key + i);
    const size_t end = std::min<size_t>(8, values.size() - i);
    for (size_t j = 0; j < end; ++j) values[i + j] = levels[bits >> (8 * j) & 0xff];
  }
}

}  // namespace

std::unique_ptr<Weights> MakeWeights(uint64_t seed, FillWeights fill) {
  return std::make_unique<FilledWeights>(seed, std::move(fill));
}

std::unique_ptr<Weights> MakeDummyWeights(uint64_t seed) {
  return MakeWeights(seed, FillWithLevels);
}

}  // namespace tandem
