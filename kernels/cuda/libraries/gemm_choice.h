#pragma once

// Which products share the timing of cuBLASLt's algorithms, and which timed algorithm is used: the
// part of the choice that needs no device. Thread: any; values.

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/libraries/cublaslt.h"

namespace tandem {

// Rows are rounded up to a power of two or to the middle between two: a step's batch varies from
// step to step.
inline int64_t RowBucket(int64_t m) {
  int64_t bucket = 4;
  while (bucket < m) bucket *= 2;
  return bucket > 32 && m <= bucket / 4 * 3 ? bucket / 4 * 3 : bucket;
}

inline constexpr uint32_t kMaxAlign = 256;  // bytes; better alignment is not distinguished

// Bytes, a power of two.
inline uint32_t AlignOf(uintptr_t address) {
  address |= kMaxAlign;
  return static_cast<uint32_t>(address & (~address + 1));
}
inline uint32_t AlignOf(const void* x) { return AlignOf(reinterpret_cast<uintptr_t>(x)); }
// Of every row.
inline uint32_t AlignOfRows(const void* data, int64_t stride, DType dtype) {
  return AlignOf(reinterpret_cast<uintptr_t>(data) |
                 static_cast<uintptr_t>(stride * SizeOf(dtype)));
}

// Products of one shape share an algorithm.
struct GemmShape {
  int64_t m_bucket = 0, n = 0, k = 0;
  uint32_t weight_align = 0, x_align = 0, out_align = 0;
  DType in = DType::kF32, out_dtype = DType::kF32;
  bool accumulate = false;
  auto operator<=>(const GemmShape&) const = default;
};

inline GemmShape ShapeOf(const GemmTask& task) {
  return {.m_bucket = RowBucket(task.m),
          .n = task.n,
          .k = task.k,
          .weight_align = AlignOfRows(task.weight, task.weight_stride, task.in),
          .x_align = AlignOfRows(task.x, task.x_stride, task.in),
          .out_align = AlignOfRows(task.out, task.out_stride, task.out_dtype),
          .in = task.in,
          .out_dtype = task.out_dtype,
          .accumulate = task.accumulate};
}

// The one of `count` candidates with the shortest best run. try_run(i) runs it untimed and returns
// whether it works; time_run(i) returns milliseconds. The first candidate if none works.
template <class TryRun, class TimeRun>
size_t FastestOf(size_t count, int num_runs, TryRun try_run, TimeRun time_run) {
  size_t best = 0;
  float best_ms = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!try_run(i)) continue;
    float least_ms = time_run(i);
    for (int run = 1; run < num_runs; ++run) least_ms = std::min(least_ms, time_run(i));
    if (best_ms == 0 || least_ms < best_ms) {
      best = i;
      best_ms = least_ms;
    }
  }
  return best;
}

}  // namespace tandem
