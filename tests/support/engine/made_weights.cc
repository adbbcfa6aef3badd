#include "tests/support/engine/made_weights.h"

#include <string_view>

#include "common/random.h"
#include "engine_core/weights/dummy_weights.h"

namespace tandem {
namespace {

void Fill(uint64_t key, std::string_view name, bool is_vector, std::span<Bf16> values) {
  const bool is_norm = is_vector || name.find("norm") != std::string_view::npos;
  for (size_t i = 0; i < values.size(); ++i) {
    const float level = static_cast<float>(MixBits(key + i) & 0xff) - 128;
    values[i] = ToBf16(is_norm ? (256 + level / 2) / 256 : level / 4 / 128);
  }
}

}  // namespace

std::unique_ptr<Weights> MakeMadeWeights(uint64_t seed) { return MakeWeights(seed, Fill); }

}  // namespace tandem
