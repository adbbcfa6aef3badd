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

// A kernel in an OverlappingStream may begin before those before it have ended. It calls this
// before anything but reads of memory that no kernel writes (weights): on return the results of all
// earlier kernels are there. The next kernel may begin, up to the same place, once all blocks of
// this one have.
__device__ inline void WaitForPreviousKernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
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

// The same in int8. The scale of a token's head follows its numbers.
struct Int8 {
  int8_t code;
};
constexpr int kInt8ScaleBytes = sizeof(float);
__device__ inline float LoadFloat(const Int8* x) { return x->code; }

// A token's head in a KV cache. scale: of the cache's layer, where heads have none of their own.
template <class Kv>
struct KvHead {
  Kv* numbers;
  float scale;
};
template <class Kv>
__device__ inline KvHead<Kv> HeadAt(Kv* cache, int64_t row, int dim, float scale) {
  return {cache + row * dim, scale};
}
__device__ inline KvHead<const Int8> HeadAt(const Int8* cache, int64_t row, int dim, float) {
  const Int8* numbers = cache + row * (dim + kInt8ScaleBytes);
  return {numbers, *reinterpret_cast<const float*>(numbers + dim)};
}

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
// Of numbers that are read once: leaves the first-level cache to others.
template <class T>
__device__ inline uint4 LoadStreamed(const T* x) {
#ifdef __CUDACC__
  uint4 raw;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
               : "l"(x));
  return raw;
#else
  return LoadRaw(x);
#endif
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

// Word i of the 16 bytes that a lane has read.
__device__ inline unsigned WordOf(const uint4& raw, int i) {
  return i == 0 ? raw.x : i == 1 ? raw.y : i == 2 ? raw.z : raw.w;
}

// Two numbers as the nearest bf16 in one word, the first one in the lower half.
__device__ inline unsigned PackPair(float first, float second) {
#ifdef __CUDACC__
  unsigned result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
  return result;
#else
  return ToBf16(first).bits | unsigned{ToBf16(second).bits} << 16;
#endif
}

// Consecutive numbers.
template <int kSize>
struct Numbers {
  float values[kSize];

  // Whether all the numbers can be there by accesses of 16 bytes, or as many as the numbers have.
  template <class T>
  __device__ static bool IsAligned(const T* x) {
    constexpr uintptr_t kBytes = kSize * sizeof(T) < 16 ? kSize * sizeof(T) : 16;
    return reinterpret_cast<uintptr_t>(x) % kBytes == 0;
  }
  // REQUIRES: IsAligned, here and in Store.
  __device__ void Load(const float* x) {
#pragma unroll
    for (int i = 0; i < kSize; i += 4) {
      const auto four = *reinterpret_cast<const float4*>(x + i);
      values[i] = four.x;
      values[i + 1] = four.y;
      values[i + 2] = four.z;
      values[i + 3] = four.w;
    }
  }
  __device__ void Load(const Bf16* x) {
    if constexpr (kSize == 4) {
      const auto two = *reinterpret_cast<const uint2*>(x);
      SetPair(0, two.x);
      SetPair(2, two.y);
    } else {
#pragma unroll
      for (int i = 0; i < kSize; i += 8) {
        const auto four = *reinterpret_cast<const uint4*>(x + i);
        SetPair(i, four.x);
        SetPair(i + 2, four.y);
        SetPair(i + 4, four.z);
        SetPair(i + 6, four.w);
      }
    }
  }
  __device__ void Store(float* out) const {
#pragma unroll
    for (int i = 0; i < kSize; i += 4) {
      *reinterpret_cast<float4*>(out + i) = {values[i], values[i + 1], values[i + 2],
                                             values[i + 3]};
    }
  }
  __device__ void Store(Bf16* out) const {
    if constexpr (kSize == 4) {
      *reinterpret_cast<uint2*>(out) = {PairAt(0), PairAt(2)};
    } else {
#pragma unroll
      for (int i = 0; i < kSize; i += 8) {
        *reinterpret_cast<uint4*>(out + i) = {PairAt(i), PairAt(i + 2), PairAt(i + 4),
                                              PairAt(i + 6)};
      }
    }
  }
  // One by one: the first `count` numbers; 0 for the others.
  template <class T>
  __device__ void LoadSome(const T* x, int64_t count) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) values[i] = i < count ? LoadFloat(x + i) : 0;
  }
  template <class T>
  __device__ void StoreSome(T* out, int64_t count) const {
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (i < count) StoreFloat(out + i, values[i]);
    }
  }

 private:
  __device__ void SetPair(int i, unsigned pair) {
    values[i] = std::bit_cast<float>(pair << 16);
    values[i + 1] = std::bit_cast<float>(pair & 0xffff0000);
  }
  __device__ unsigned PairAt(int i) const { return PackPair(values[i], values[i + 1]); }
};

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

// A matrix [8, 8] of 16-bit numbers in pairs, row l / 4 and columns 2 (l % 4) + {0, 1} in lane l,
// becomes its transpose in the same form.
__device__ inline unsigned TransposePairs(unsigned pair) {
#ifdef __CUDACC__
  unsigned result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
#else
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, column = lane / 4;
  const auto number = [&](int row) {
    return __shfl_sync(kAllLanes, pair, 4 * row + column / 2) >> column % 2 * 16 & 0xffff;
  };
  const unsigned first = number(lane % 4 * 2), second = number(lane % 4 * 2 + 1);
  return first | second << 16;
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

// (x & mask) | set, in one instruction.
__device__ inline unsigned MaskAndSet(unsigned x, unsigned mask, unsigned set) {
#ifdef __CUDACC__
  unsigned result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(x), "r"(mask), "r"(set));
  return result;
#else
  return (x & mask) | set;
#endif
}

// Copies 16 bytes to shared memory, or zeros if !is_there; both addresses are multiples of 16. The
// thread goes on, and sees them after AwaitCopies, as others do after __syncthreads too.
__device__ inline void CopyAsync(uint4* shared, const void* from, bool is_there) {
#ifdef __CUDACC__
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(from), "r"(is_there ? 16 : 0)
               : "memory");
#else
  *shared = is_there ? *static_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
#endif
}
__device__ inline void AwaitCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
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
