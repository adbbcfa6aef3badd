#pragma once

// The angles of rotary position embedding, with the scaling that the model was trained or extended
// with.
// Thread: pure functions. Formulas: RoPE (Su et al. 2021), linear interpolation (Chen et al. 2023),
// YaRN (Peng et al. 2023), LongRoPE (Ding et al. 2024), Llama 3.1's scaling by wavelength; all as
// HF transformers evaluates them.

#include <cstdint>
#include <vector>

#include "engine_core/weights/model_config.h"
#include "kernels/parallel.h"

namespace tandem {

// Radians per position for each of head_dim / 2 pairs. LongRoPE has two sets: all requests use the
// short one if max_positions is within the original context, else the long one (as in vLLM).
std::vector<float> RopeFrequencies(const RopeConfig& rope, int64_t head_dim, int64_t max_positions);

// [max_positions, head_dim / 2] each, attention_factor included.
struct RopeTable {
  std::vector<float> cos;
  std::vector<float> sin;
};
// run(n, fill) calls fill for ranges that make up [0, n), perhaps on several threads.
RopeTable MakeRopeTable(const RopeConfig& rope, int64_t head_dim, int64_t max_positions,
                        BorrowedFunction<int64_t, RangeFunction> run);

// By how much queries grow with their position p: 1 + beta ln(1 + floor((p + shift) / length)), for
// each position.
std::vector<float> QueryScales(double beta, double length, int64_t shift, int64_t max_positions);

}  // namespace tandem
