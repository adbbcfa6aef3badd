#pragma once

// Shared by the kernels of this folder: numbers of either compute type as float32, and sums over a
// warp or a block. Device code; every function is called by all threads of the warp or block.

#include <cuda_runtime.h>

#include <cstdint>
#ifndef __CUDACC__
#include <atomic>
#endif

#include "kernels/float8.h"
#include "kernels/tensor.h"

namespace tandem {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xffffffff;

// A kernel in an OverlappingStream may begin before the previous kernel has ended. It calls this
// before anything but reads of memory that no kernel writes (weights): on return the previous
// kernel's results are there, and the next kernel may begin.
__device__ inline void WaitForPreviousKernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline float LoadFloat(const float* x) { return *x; }
__device__ inline float LoadFloat(const Bf16* x) { return ToFloat(*x); }
__device__ inline void StoreFloat(float* out, float value) { *out = value; }
__device__ inline void StoreFloat(Bf16* out, float value) { *out = ToBf16(value); }

// A number of a KV cache in e4m3.
struct Float8 {
  uint8_t code;
};
__device__ inline float LoadFloat(const Float8* x) { return Float8ToFloat(x->code); }
__device__ inline void StoreFloat(Float8* out, float value) { out->code = FloatToFloat8(value); }

// 16 bytes of numbers, the widest load.
template <class T>
struct Wide {
  static constexpr int kSize = 16 / sizeof(T);
  float values[kSize];
};

// A load in flight takes four registers until it is widened.
template <class T>
__device__ inline uint4 LoadRaw(const T* x) {
  return *reinterpret_cast<const uint4*>(x);
}
template <class T>
__device__ inline Wide<T> Widen(uint4 raw) {
  const unsigned words[] = {raw.x, raw.y, raw.z, raw.w};
  Wide<T> wide;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Wide<T>::kSize == 4) {
      wide.values[i] = std::bit_cast<float>(words[i]);
    } else {
      wide.values[2 * i] = std::bit_cast<float>(words[i] << 16);
      wide.values[2 * i + 1] = std::bit_cast<float>(words[i] & 0xffff0000);
    }
  }
  return wide;
}

struct Silu {
  __device__ static float Of(float x) { return x / (1 + expf(-x)); }
};
struct TanhGelu {
  __device__ static float Of(float x) {
    constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
    return 0.5f * x * (1 + tanhf(kRoot * (x + 0.044715f * x * x * x)));
  }
};

// sums[16, 8] += a[16, 16] b[16, 8] of bf16, each spread over a warp. With r = l / 4 and
// c = 2 (l % 4), lane l holds
//   a[0]: row r, columns c, c + 1    a[1]: row r + 8    a[2]: columns c + 8, c + 9    a[3]: both
//   b[0]: rows c, c + 1 of column r  b[1]: rows c + 8, c + 9
//   sums[0], sums[1]: row r, columns c, c + 1           sums[2], sums[3]: row r + 8.
__device__ inline void MultiplyFragments(float (&sums)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  cuda_emulation::MultiplyFragments(sums, a, b);
#endif
}

// Pairs of bf16 in one word, the first one in the lower half: a * b + c, rounded once.
__device__ inline unsigned FusePairs(unsigned a, unsigned b, unsigned c) {
#ifdef __CUDACC__
  unsigned result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
#else
  const auto half = [&](int shift) {
    const auto number = [shift](unsigned pair) {
      return std::bit_cast<float>((pair >> shift & 0xffff) << 16);
    };
    return unsigned{ToBf16(number(a) * number(b) + number(c)).bits} << shift;
  };
  return half(0) | half(16);
#endif
}

// Words by which kernels on several devices wait for each other. What a block has written before
// __syncthreads and the store is there for a block of another device after its wait and
// __syncthreads.
__device__ inline void StoreForPeers(uint32_t* word, uint32_t value) {
#ifdef __CUDACC__
  asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
#else
  std::atomic_ref(*word).store(value);
#endif
}
// Until the word is `value` or a later one.
__device__ inline void AwaitPeer(uint32_t* word, uint32_t value) {
  for (;;) {
    uint32_t now = 0;
#ifdef __CUDACC__
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
#else
    now = std::atomic_ref(*word).load();
#endif
    if (static_cast<int32_t>(now - value) >= 0) return;
#ifndef __CUDACC__
    cuda_emulation::RunOthers();
#endif
  }
}

// A number in f16.
__device__ inline float LoadHalf(const uint16_t* x) {
#ifdef __CUDACC__
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(*x));
  return result;
#else
  return HalfToFloat(*x);
#endif
}

template <int kWidth = kWarpSize>
__device__ inline float WarpSum(float value) {
#pragma unroll
  for (int mask = kWidth / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, mask);
  }
  return value;
}

template <int kWidth = kWarpSize>
__device__ inline float WarpMax(float value) {
#pragma unroll
  for (int mask = kWidth / 2; mask > 0; mask /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, mask));
  }
  return value;
}

// The sum over a block of kThreads (a multiple of 32), the same in every thread.
template <int kThreads>
__device__ inline float BlockSum(float value) {
  __shared__ float sums[kThreads / kWarpSize];
  value = WarpSum(value);
  __syncthreads();  // all threads have read the previous call's sum
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int warp = 0; warp < kThreads / kWarpSize; ++warp) total += sums[warp];
  return total;
}

}  // namespace tandem
