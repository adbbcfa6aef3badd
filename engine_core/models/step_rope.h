#pragma once

// M-RoPE: tokens of an image have three positions, their time, height and width, each of which
// turns some of a head's pairs of dimensions; those of a text have one that counts three times. So
// the angles of a step's tokens are put together, a row for each token, from the rows that a table
// of plain RoPE has for those positions.
// Thread: engine loop. Owns: room for a step's rows. Source: Wang et al. 2024 (Qwen2-VL).

#include <cstdint>
#include <vector>

#include "engine_core/models/load_context.h"
#include "engine_core/weights/rope_config.h"

namespace tandem {

// For each of num_pairs pairs which position turns it: 0 time, 1 height, 2 width.
std::vector<int> AxesOfPairs(const RopeConfig& rope, int64_t num_pairs);

class StepRope {
 public:
  struct Angles {
    Tensor cos, sin;  // [T, pairs] f32
    Tensor rows;      // [T] i32, 0, 1, ...
  };

  static StatusOr<StepRope> Create(const LoadContext& context);

  // cos, sin: [max_positions, pairs]; positions: [3, T] i32. Valid until the next call. All are in
  // backend memory.
  Angles Fill(const Tensor& cos, const Tensor& sin, const Tensor& positions);

 private:
  explicit StepRope(Ops* ops) : ops_(ops) {}

  Ops* ops_;
  OwnedTensor axes_;       // [pairs] i32
  OwnedTensor cos_, sin_;  // [max_tokens, pairs]
  OwnedTensor rows_;       // [max_tokens]
};

}  // namespace tandem
