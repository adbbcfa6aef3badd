#pragma once

// The loops of recurrences, on the vec_*.h of the including isa_*.cc. A strip of columns passes
// through all rows of a state, so that its sums stay in registers. No Fma: see state_loops.h.

#include "kernels/cpu/adapter_kernels.h"
#include "kernels/cpu/math_kernels.h"
#include "kernels/cpu/norm_kernels.h"
#include "kernels/cpu/state_loops.h"
#include "kernels/elementary_functions.h"

namespace tandem {
namespace {

// kVecs vectors of columns from `begin` on; a part is one vector of which the row has `count`.
template <int kVecs, bool kIsPart>
struct StateStrip {
  static constexpr int kNumVecs = kVecs;
  int64_t begin;
  int64_t count;

  Vec Get(const float* row, int v) const {
    if constexpr (kIsPart) return LoadN(row + begin, count);
    return Load(row + begin + v * kVecLanes);
  }
  void Put(float* row, int v, Vec x) const {
    if constexpr (kIsPart) return StoreN(row + begin, x, count);
    Store(row + begin + v * kVecLanes, x);
  }
};

template <class F>
inline __attribute__((always_inline)) void ForEachStrip(int64_t size, F f) {
  constexpr int64_t kColumns = kStripVecs * kVecLanes;
  int64_t i = 0;
  for (; i + kColumns <= size; i += kColumns) f(StateStrip<kStripVecs, false>{i, kColumns});
  for (; i + kVecLanes <= size; i += kVecLanes) f(StateStrip<1, false>{i, kVecLanes});
  if (i < size) f(StateStrip<1, true>{i, size - i});
}

struct VecOps {
  static Vec All(float value) { return Set1(value); }
  static Vec Add(Vec a, Vec b) { return tandem::Add(a, b); }
  static Vec Sub(Vec a, Vec b) { return tandem::Sub(a, b); }
  static Vec Mul(Vec a, Vec b) { return tandem::Mul(a, b); }
  static Vec Div(Vec a, Vec b) { return tandem::Div(a, b); }
  static Vec MulAdd(Vec a, Vec b, Vec c) { return Add(Mul(a, b), c); }
  static Vec SelectLess(Vec a, Vec b, Vec less, Vec other) {
    return tandem::SelectLess(a, b, less, other);
  }
  static Vec PowerOfTwo(Vec rounded) {
    return FloatsOf(ShiftLeft(AddUnits(UnitsOf(rounded), UnitsOf(SetInt(127))), 23));
  }
};

inline void WidenRow(const uint16_t* x, int64_t size, float* out) {
  ForEachVec(size, [&](int64_t i, int64_t count) { StoreN(out + i, LoadN(x + i, count), count); });
}

inline void NarrowRow(const float* x, int64_t size, uint16_t* out) {
  ForEachVec(size,
             [&](int64_t i, int64_t count) { StoreExactN(out + i, LoadN(x + i, count), count); });
}

// x = f(strip, x), vector by vector. The processor begins with the next one by itself.
template <class F>
inline __attribute__((always_inline)) void MapRow(int64_t size, float* x, F f) {
  const auto map = [&](const auto& strip) { strip.Put(x, 0, f(strip, strip.Get(x, 0))); };
  int64_t i = 0;
  for (; i + kVecLanes <= size; i += kVecLanes) map(StateStrip<1, false>{i, kVecLanes});
  if (i < size) map(StateStrip<1, true>{i, size - i});
}

inline void SiluRow(int64_t size, float* x) {
  MapRow(size, x, [](const auto&, Vec number) { return SiluOf<VecOps>(number); });
}

inline void SigmoidRow(int64_t size, float* x) {
  MapRow(size, x, [](const auto&, Vec number) { return SigmoidOf<VecOps>(number); });
}

inline void SoftplusRow(const float* bias, int64_t size, float* x) {
  MapRow(size, x, [&](const auto& strip, Vec number) {
    return SoftplusOf<VecOps>(Add(number, strip.Get(bias, 0)));
  });
}

inline void DecayRow(float rate, int64_t size, float* x) {
  MapRow(size, x, [&](const auto&, Vec number) {
    return ExpNonPositiveOf<VecOps>(Mul(Set1(rate), number));
  });
}

// Tokens come by value: a store to a state could change one that is read through a reference, so
// that its pointers would be loaded again.
template <class Strip>
inline void ConvolveStrip(ConvolveToken token, const Strip& strip) {
  constexpr int kVecs = Strip::kNumVecs;
  Vec sum[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v)
    sum[v] = token.bias == nullptr ? Zero() : strip.Get(token.bias, v);
  for (int64_t j = 0; j < token.kernel; ++j) {
    const float* weight = token.weight + j * token.weight_stride;
    const float* input = token.inputs[j];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      sum[v] = Add(sum[v], Mul(strip.Get(weight, v), strip.Get(input, v)));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) strip.Put(token.out, v, sum[v]);
}

inline void ConvolveLoop(const ConvolveToken& token) {
  ForEachStrip(token.size, [&](const auto& strip) { ConvolveStrip(token, strip); });
}

template <class Strip>
inline void DeltaStrip(DeltaToken token, const Strip& strip) {
  constexpr int kVecs = Strip::kNumVecs;
  Vec seen[kVecs], sum[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) seen[v] = sum[v] = Zero();
  for (int64_t i = 0; i < token.key_dim; ++i) {
    const float* row = token.state + i * token.value_dim;
    const Vec kept = Set1(token.kept[i * token.kept_stride]), key = Set1(token.k[i]);
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      seen[v] = Add(seen[v], Mul(Mul(strip.Get(row, v), kept), key));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) {
    seen[v] = Mul(Set1(token.beta), Sub(strip.Get(token.v, v), seen[v]));
  }
  for (int64_t i = 0; i < token.key_dim; ++i) {
    float* row = token.state + i * token.value_dim;
    const Vec kept = Set1(token.kept[i * token.kept_stride]), key = Set1(token.k[i]);
    const Vec query = Set1(token.q[i]);
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      const Vec next = Add(Mul(strip.Get(row, v), kept), Mul(key, seen[v]));
      strip.Put(row, v, next);
      sum[v] = Add(sum[v], Mul(next, query));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) strip.Put(token.out, v, sum[v]);
}

inline void DeltaLoop(const DeltaToken& token) {
  ForEachStrip(token.value_dim, [&](const auto& strip) { DeltaStrip(token, strip); });
}

template <class Strip>
inline void ScanStrip(ScanToken token, const Strip& strip) {
  constexpr int kVecs = Strip::kNumVecs;
  Vec x[kVecs], sum[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) {
    x[v] = strip.Get(token.x, v);
    sum[v] = Mul(Set1(token.skip), x[v]);
  }
  const Vec kept = Set1(token.kept);
  for (int64_t n = 0; n < token.num_states; ++n) {
    float* row = token.state + n * token.dim;
    const Vec in = Set1(token.step * token.b[n]), out = Set1(token.c[n]);
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      const Vec next = Add(Mul(strip.Get(row, v), kept), Mul(in, x[v]));
      strip.Put(row, v, next);
      sum[v] = Add(sum[v], Mul(next, out));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) strip.Put(token.out, v, sum[v]);
}

inline void ScanLoop(const ScanToken& token) {
  ForEachStrip(token.dim, [&](const auto& strip) { ScanStrip(token, strip); });
}

template <class Strip>
inline void SelectStrip(SelectToken token, const Strip& strip) {
  constexpr int kVecs = Strip::kNumVecs;
  Vec step[kVecs], in[kVecs], sum[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) {
    const Vec x = strip.Get(token.x, v);
    step[v] = strip.Get(token.steps, v);
    in[v] = Mul(step[v], x);
    sum[v] = Mul(strip.Get(token.skip, v), x);
  }
  for (int64_t n = 0; n < token.num_states; ++n) {
    float* row = token.state + n * token.size;
    const float* a = token.a + n * token.a_stride;
    const Vec b = Set1(token.b[n]), c = Set1(token.c[n]);
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      const Vec kept = ExpNonPositiveOf<VecOps>(Mul(strip.Get(a, v), step[v]));
      const Vec next = Add(Mul(strip.Get(row, v), kept), Mul(in[v], b));
      strip.Put(row, v, next);
      sum[v] = Add(sum[v], Mul(next, c));
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) strip.Put(token.out, v, sum[v]);
}

inline void SelectLoop(const SelectToken& token) {
  ForEachStrip(token.size, [&](const auto& strip) { SelectStrip(token, strip); });
}

}  // namespace
}  // namespace tandem
