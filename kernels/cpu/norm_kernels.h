#pragma once

// Row-wise norms and activations, on the vec_*.h of the including isa_*.cc. Lane i of a vector
// always holds the elements i, i + 16, ... of the row; a last partial vector is filled with zeros.

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/math_kernels.h"

namespace tandem {
namespace {

// Calls f(i, count) for each vector [i, i + count) of a row.
template <class F>
inline __attribute__((always_inline)) void ForEachVec(int64_t size, F f) {
  int64_t i = 0;
  for (; i + 16 <= size; i += 16) f(i, 16);
  if (i < size) f(i, size - i);
}

// The largest lane of a result of MaxAbsBits: NaN if there was one, which ReduceMax would lose.
inline float MaxOfBits(Vec x) {
  float lanes[16];
  Store(lanes, x);
  uint32_t max = 0;
  for (const float& lane : lanes) {
    uint32_t bits;
    __builtin_memcpy(&bits, &lane, sizeof(bits));
    max = bits > max ? bits : max;
  }
  float result;
  __builtin_memcpy(&result, &max, sizeof(result));
  return result;
}

template <class X>
inline float ScaleOfRms(const X* x, int64_t size, float epsilon) {
  Vec sum = Zero();
  ForEachVec(size, [&](int64_t i, int64_t count) {
    const Vec value = LoadN(x + i, count);
    sum = Fma(value, value, sum);
  });
  return 1.0f / __builtin_sqrtf(ReduceAdd(sum) / static_cast<float>(size) + epsilon);
}

template <class X, class Out>
void RmsNormRow(const X* x, const float* weight, float epsilon, int64_t size, Out* out) {
  const Vec scale = Set1(ScaleOfRms(x, size, epsilon));
  ForEachVec(size, [&](int64_t i, int64_t count) {
    StoreN(out + i, Mul(Mul(LoadN(x + i, count), scale), LoadN(weight + i, count)), count);
  });
}

template <class Type>
void RmsNorm(const void* x, bool x_is_f32, const float* weight, float epsilon, int64_t size,
             void* out, bool out_is_f32) {
  using Element = typename Type::Element;
  const auto* x_f32 = static_cast<const float*>(x);
  const auto* x_act = static_cast<const Element*>(x);
  auto* out_f32 = static_cast<float*>(out);
  auto* out_act = static_cast<Element*>(out);
  if (x_is_f32) {
    out_is_f32 ? RmsNormRow(x_f32, weight, epsilon, size, out_f32)
               : RmsNormRow(x_f32, weight, epsilon, size, out_act);
  } else {
    out_is_f32 ? RmsNormRow(x_act, weight, epsilon, size, out_f32)
               : RmsNormRow(x_act, weight, epsilon, size, out_act);
  }
}

template <class X>
void AddRow(float* residual, const X* x, int64_t size) {
  ForEachVec(size, [&](int64_t i, int64_t count) {
    StoreN(residual + i, Add(LoadN(residual + i, count), LoadN(x + i, count)), count);
  });
}

template <class Type>
void AddToResidual(float* residual, const void* x, bool x_is_f32, int64_t size) {
  x_is_f32 ? AddRow(residual, static_cast<const float*>(x), size)
           : AddRow(residual, static_cast<const typename Type::Element*>(x), size);
}

template <class X>
void AddScaledRow(float* residual, const X* x, float scale, int64_t size) {
  const Vec wide = Set1(scale);
  ForEachVec(size, [&](int64_t i, int64_t count) {
    StoreN(residual + i, Fma(wide, LoadN(x + i, count), LoadN(residual + i, count)), count);
  });
}

template <class Type>
void AddScaled(float* residual, const void* x, bool x_is_f32, float scale, int64_t size) {
  x_is_f32 ? AddScaledRow(residual, static_cast<const float*>(x), scale, size)
           : AddScaledRow(residual, static_cast<const typename Type::Element*>(x), scale, size);
}

// out = activate(gate) * up; without up, activate(gate).
template <class X, class Out, class Activate>
void ActivateRow(const X* gate, const X* up, int64_t size, Out* out, Activate activate) {
  ForEachVec(size, [&](int64_t i, int64_t count) {
    const Vec value = activate(LoadN(gate + i, count));
    StoreN(out + i, up == nullptr ? value : Mul(value, LoadN(up + i, count)), count);
  });
}

template <class Type, class Activate>
void ActivateAndMul(const void* gate, const void* up, bool is_f32, int64_t size, void* out,
                    Activate activate) {
  using Element = typename Type::Element;
  auto* to = static_cast<Element*>(out);
  if (is_f32) {
    ActivateRow(static_cast<const float*>(gate), static_cast<const float*>(up), size, to, activate);
  } else {
    ActivateRow(static_cast<const Element*>(gate), static_cast<const Element*>(up), size, to,
                activate);
  }
}

template <class Type>
void SiluAndMul(const void* gate, const void* up, bool is_f32, int64_t size, void* out) {
  ActivateAndMul<Type>(gate, up, is_f32, size, out, [](Vec x) { return Silu(x); });
}

template <class Type>
void GeluAndMul(const void* gate, const void* up, bool is_f32, int64_t size, void* out) {
  ActivateAndMul<Type>(gate, up, is_f32, size, out, [](Vec x) { return Gelu(x); });
}

template <class Type>
void ErfGeluAndMul(const void* gate, const void* up, bool is_f32, int64_t size, void* out) {
  ActivateAndMul<Type>(gate, up, is_f32, size, out, [](Vec x) { return ErfGelu(x); });
}

template <class X, class Out>
void ClampedSiluAndMulRow(const X* gate, const X* up, float limit, int64_t size, Out* out) {
  const Vec most = Set1(limit), least = Set1(-limit), one = Set1(1.0f);
  ForEachVec(size, [&](int64_t i, int64_t count) {
    const Vec g = Min(LoadN(gate + i, count), most);
    const Vec u = Max(least, Min(LoadN(up + i, count), most));
    const Vec sigmoid = Div(one, Add(one, Exp(Mul(g, Set1(-1.702f)))));
    StoreN(out + i, Mul(Mul(g, sigmoid), Add(u, one)), count);
  });
}

template <class Type>
void ClampedSiluAndMul(const void* gate, const void* up, bool is_f32, float limit, int64_t size,
                       void* out) {
  using Element = typename Type::Element;
  auto* to = static_cast<Element*>(out);
  if (is_f32) {
    ClampedSiluAndMulRow(static_cast<const float*>(gate), static_cast<const float*>(up), limit,
                         size, to);
  } else {
    ClampedSiluAndMulRow(static_cast<const Element*>(gate), static_cast<const Element*>(up), limit,
                         size, to);
  }
}

template <class Type>
void Activate(const void* x, bool is_f32, ElementKind kind, int64_t size, void* out) {
  const auto run = [&](auto activate) {
    ActivateAndMul<Type>(x, nullptr, is_f32, size, out, activate);
  };
  switch (kind) {
    case ElementKind::kSilu:
      return run([](Vec v) { return Silu(v); });
    case ElementKind::kTanhGelu:
      return run([](Vec v) { return Gelu(v); });
    case ElementKind::kErfGelu:
      return run([](Vec v) { return ErfGelu(v); });
    case ElementKind::kRelu:
      return run([](Vec v) { return Max(v, Zero()); });
    case ElementKind::kSquaredRelu:
      return run([](Vec v) { return Mul(Max(v, Zero()), Max(v, Zero())); });
  }
}

template <class Type>
void ScaleRow(void* x, float factor, int64_t size) {
  auto* numbers = static_cast<typename Type::Element*>(x);
  ForEachVec(size, [&](int64_t i, int64_t count) {
    StoreN(numbers + i, Mul(LoadN(numbers + i, count), Set1(factor)), count);
  });
}

// The lanes of the last vector beyond the row must not count as values `mean` below the mean.
template <class X, class Out>
void LayerNormRow(const X* x, const float* weight, const float* bias, float epsilon, int64_t size,
                  Out* out) {
  Vec sum = Zero();
  ForEachVec(size, [&](int64_t i, int64_t count) { sum = Add(sum, LoadN(x + i, count)); });
  const Vec mean = Set1(ReduceAdd(sum) / static_cast<float>(size));
  Vec squares = Zero();
  ForEachVec(size, [&](int64_t i, int64_t count) {
    const Vec apart = KeepLanes(Sub(LoadN(x + i, count), mean), 0, static_cast<int>(count), Zero());
    squares = Fma(apart, apart, squares);
  });
  const Vec scale =
      Set1(1.0f / __builtin_sqrtf(ReduceAdd(squares) / static_cast<float>(size) + epsilon));
  ForEachVec(size, [&](int64_t i, int64_t count) {
    const Vec normed = Mul(Sub(LoadN(x + i, count), mean), scale);
    StoreN(out + i, Fma(normed, LoadN(weight + i, count), LoadN(bias + i, count)), count);
  });
}

template <class Type>
void LayerNorm(const void* x, bool x_is_f32, const float* weight, const float* bias, float epsilon,
               int64_t size, void* out, bool out_is_f32) {
  using Element = typename Type::Element;
  const auto* x_f32 = static_cast<const float*>(x);
  const auto* x_act = static_cast<const Element*>(x);
  auto* out_f32 = static_cast<float*>(out);
  auto* out_act = static_cast<Element*>(out);
  if (x_is_f32) {
    out_is_f32 ? LayerNormRow(x_f32, weight, bias, epsilon, size, out_f32)
               : LayerNormRow(x_f32, weight, bias, epsilon, size, out_act);
  } else {
    out_is_f32 ? LayerNormRow(x_act, weight, bias, epsilon, size, out_f32)
               : LayerNormRow(x_act, weight, bias, epsilon, size, out_act);
  }
}

inline void SoftCap(float* x, float cap, int64_t size) {
  const Vec wide = Set1(cap);
  ForEachVec(size, [&](int64_t i, int64_t count) {
    StoreN(x + i, Mul(wide, Tanh(Div(LoadN(x + i, count), wide))), count);
  });
}

}  // namespace
}  // namespace tandem
