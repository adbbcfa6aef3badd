#pragma once

// How keys and values are stored, and the sizes that this implies. Values; any thread. Static,
// because kernels of several instruction sets include it: a function of theirs must not be taken
// for another file's.

#include <cstdint>

namespace tandem {

enum class KvFormat : uint8_t {
  kCompute,  // in the backend's compute type
  // Each token's K of a head rounded to int8 in [-127, 127] with a float32 scale of its own,
  // max |K| / 127, and V likewise.
  kInt8,
  // K over the layer's k_scale and V over its v_scale, as e4m3 (kernels/float8.h).
  kFloat8,
  // Each token's K of a head, rotated, in groups of kInt4Group numbers: base + code * step, where a
  // code is in [0, 15], base is the group's least number and step 1/15 of its range, both bf16.
  // V likewise. Queries are rotated too, which leaves their products with keys as they are, and
  // sums of values are rotated back. A rotation spreads a channel that is far larger than others,
  // as keys have them, over the head: alone it would take the codes of its whole group.
  kInt4,
};

inline constexpr int64_t kInt4Group = 32;

// The rotation is a Hadamard matrix over its root, symmetric and its own inverse, for each run of
// as many numbers as the largest power of two that divides a head: [i][j] is -1 to the number of
// bits that i and j share, over the root of the size.
[[maybe_unused]] static constexpr int64_t RotationSize(int64_t head_dim) {
  return head_dim & -head_dim;
}

}  // namespace tandem
