#pragma once

// Weights that no file has: of any name and shape, in bf16, with values that depend only on
// (seed, name, index). Thread: as Weights.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "engine_core/weights/safetensors.h"

namespace tandem {

// Sets the values of one tensor. key: of the seed and the name alone.
using FillWeights = std::function<void(uint64_t key, std::string_view name, bool is_vector,
                                       std::span<Bf16> values)>;
std::unique_ptr<Weights> MakeWeights(uint64_t seed, FillWeights fill);

// `--load-format dummy`: small enough to keep the activations of a deep model finite; vectors are
// near 1, as norms are.
std::unique_ptr<Weights> MakeDummyWeights(uint64_t seed);

}  // namespace tandem
