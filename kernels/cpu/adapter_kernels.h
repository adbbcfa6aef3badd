#pragma once

// The two products of an adapter's pair, on the vec_*.h of the including isa_*.cc. The sums of A x
// are chains per lane over k, then over the lanes; those of B over the ranks: neither depends on
// the other rows of a batch.

#include "kernels/cpu/kernel_table.h"

namespace tandem {
namespace {

constexpr int kVecLanes = 16;
static_assert(kVecLanes == kStripColumns);

// Unrolled: otherwise gcc 12 keeps arrays of sums in memory.
#define TANDEM_UNROLL_SUMS _Pragma("GCC unroll 16")

// Four sums that do not wait for one another, of every fourth rank.
template <class Weight>
inline Vec TermOf(const AdapterStrip& strip, const float* inputs) {
  constexpr int kSums = 4;
  const auto* weights = static_cast<const Weight*>(strip.weights);
  inputs += strip.first;
  // A decode step reads B once: the same columns of the next panel come while this one is computed.
  const auto* ahead = weights + int64_t{strip.count} * kVecLanes * (kPanelColumns / kVecLanes);
  Vec sum[kSums] = {Zero(), Zero(), Zero(), Zero()};
  int32_t r = 0;
  for (; r + kSums <= strip.count; r += kSums) {
    TANDEM_UNROLL_SUMS
    for (int i = 0; i < kSums; ++i) {
      if (kPrefetchWeights && i % 2 == 0) {
        __builtin_prefetch(ahead + (r + i) * kVecLanes, 0, 2);
      }
      sum[i] = Fma(Set1(inputs[r + i]), Load(weights + (r + i) * kVecLanes), sum[i]);
    }
  }
  for (; r < strip.count; ++r) {
    sum[0] = Fma(Set1(inputs[r]), Load(weights + r * kVecLanes), sum[0]);
  }
  return Add(Add(sum[0], sum[1]), Add(sum[2], sum[3]));
}

// What the row's adapter adds to the columns of a strip.  REQUIRES: it has one.
inline Vec TermOf(const LinearTask& task, int64_t row, int64_t strip) {
  const AdapterTerm& term = task.terms[row];
  return task.terms_are_f32 ? TermOf<float>(term.strips[strip], term.inputs)
                            : TermOf<uint16_t>(term.strips[strip], term.inputs);
}

template <class Type>
void AddAdapterTerm(float* out, const AdapterTerm& term, float scale, int64_t size) {
  for (int64_t i = 0; i < size; i += kVecLanes) {
    const int64_t count = size - i < kVecLanes ? size - i : kVecLanes;
    const Vec sum = TermOf<typename Type::Element>(term.strips[i / kVecLanes], term.inputs);
    StoreN(out + i, Fma(Set1(scale), sum, LoadN(out + i, count)), count);
  }
}

// kRows rows of x with kRanks ranks of a, which lie together.
template <class Type, int kRanks, int kRows>
void AdapterInputsTile(const AdapterInputsTask& task, int64_t rank, int64_t row) {
  using Element = typename Type::Element;
  constexpr int kElementsOfLine = 64 / sizeof(Element);
  constexpr int kAhead = 4096 / sizeof(Element);  // some 250 ns at 16 bytes/ns
  const auto* a = static_cast<const Element*>(task.a) + rank * PaddedColumns(task.k);
  const Element* x[kRows];
  Vec sum[kRanks][kRows];
  for (int r = 0; r < kRows; ++r) x[r] = static_cast<const Element*>(task.rows[row + r]);
  TANDEM_UNROLL_SUMS
  for (int i = 0; i < kRanks; ++i) {
    TANDEM_UNROLL_SUMS
    for (int r = 0; r < kRows; ++r) sum[i][r] = Zero();
  }
  const auto add = [&](auto load) __attribute__((always_inline)) {
    Vec input[kRows];
    TANDEM_UNROLL_SUMS
    for (int r = 0; r < kRows; ++r) input[r] = load(x[r]);
    TANDEM_UNROLL_SUMS
    for (int i = 0; i < kRanks; ++i) {
      const Vec weight = Load(a + i * kVecLanes);
      TANDEM_UNROLL_SUMS
      for (int r = 0; r < kRows; ++r) sum[i][r] = Fma(weight, input[r], sum[i][r]);
    }
    a += kRanks * kVecLanes;
  };
  const int64_t whole = task.k / kVecLanes * kVecLanes;
  for (int64_t k = 0; k < whole; k += kVecLanes) {
    if constexpr (kPrefetchWeights) {
      TANDEM_UNROLL_SUMS
      for (int i = 0; i < kRanks * kVecLanes; i += kElementsOfLine) {
        __builtin_prefetch(a + kAhead + i, 0, 2);
      }
    }
    add([k](const Element* p) { return Load(p + k); });
  }
  if (whole < task.k) {
    add([&](const Element* p) { return LoadN(p + whole, task.k - whole); });
  }
  TANDEM_UNROLL_SUMS
  for (int i = 0; i < kRanks; ++i) {
    TANDEM_UNROLL_SUMS
    for (int r = 0; r < kRows; ++r) task.sums[row + r][rank + i] = ReduceAdd(sum[i][r]);
  }
}

template <class Type, int kRanks>
void AdapterInputsOfRanks(const AdapterInputsTask& task, int64_t rank) {
  constexpr int kRows = kTileRows >= 6 ? 4 : 1;  // sums that stay in registers
  int64_t row = 0;
  for (; row + kRows <= task.num_rows; row += kRows) {
    AdapterInputsTile<Type, kRanks, kRows>(task, rank, row);
  }
  for (; row < task.num_rows; ++row) AdapterInputsTile<Type, kRanks, 1>(task, rank, row);
}

template <class Type>
void AdapterInputs(const AdapterInputsTask& task) {
  constexpr int kRanks = kRanksTogether;
  int64_t rank = task.begin;
  for (; rank + kRanks <= task.end; rank += kRanks) AdapterInputsOfRanks<Type, kRanks>(task, rank);
  for (; rank < task.end; ++rank) AdapterInputsOfRanks<Type, 1>(task, rank);
}

}  // namespace
}  // namespace tandem
