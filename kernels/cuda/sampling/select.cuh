#pragma once

// Searches of one row of logits by a whole block: for the largest, for the place where a running
// sum reaches a value, for the logit down to which a sum reaches it. Sums are of integers, so that
// no result depends on the order of threads. Device code; all kSelectThreads threads of the block
// call each function together, and each gets the result.

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/elementary_functions.h"

namespace tandem {

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectWarps = kSelectThreads / kWarpSize;
inline constexpr int kNumBins = 1024;
// Of the row's candidates: each warp's share, in the order of ids.
inline constexpr int kSegment = 128;
inline constexpr int kMaxCandidates = kSelectWarps * kSegment;

// Weights are in [0, 1]; their sums are counted in units of 2^-43, exact for weights from 2^-20 on.
using Mass = unsigned long long;
__device__ inline Mass MassOf(float weight) { return static_cast<Mass>(weight * 0x1p43f); }

// The larger value, among equals the lower index; an index < 0 is no value.
struct Best {
  float value;
  int32_t idx;
};
__device__ inline Best Better(Best a, Best b) {
  if (b.idx < 0) return a;
  if (a.idx < 0) return b;
  return b.value > a.value || (b.value == a.value && b.idx < a.idx) ? b : a;
}
__device__ inline Best WarpBest(Best best) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    best = Better(best, {__shfl_xor_sync(kAllLanes, best.value, mask),
                         __shfl_xor_sync(kAllLanes, best.idx, mask)});
  }
  return best;
}

template <class T>
__device__ inline T WarpTotal(T value) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, mask);
  }
  return value;
}

// Some logits in ascending order of their ids; unused places hold -infinity.
struct Line {
  const float* x;
  int64_t size;
  const int32_t* ids;  // null: they are 0, 1, ...

  __device__ int32_t IdAt(int64_t i) const {
    return ids == nullptr ? static_cast<int32_t>(i) : ids[i];
  }
};

// Shared memory of a block.
struct SelectMemory {
  Mass sums[kSelectWarps];
  Mass more_sums[kSelectWarps];
  int32_t counts[kSelectWarps];
  float values[kSelectWarps];
  int32_t idxs[kSelectWarps];
  Mass bins[kNumBins];
  float candidates[kMaxCandidates];
  int32_t candidate_ids[kMaxCandidates];
};

__device__ inline bool IsFinite(float x) {
  return (std::bit_cast<uint32_t>(x) & 0x7f800000u) != 0x7f800000u;
}

struct RowBest {
  Best best;
  int32_t num_bad;  // NaN or infinite
};

// Of what the threads have found each.
__device__ inline RowBest BlockBest(Best best, int32_t num_bad, SelectMemory* memory) {
  best = WarpBest(best);
  num_bad = WarpTotal(num_bad);
  __syncthreads();  // every thread has read what an earlier search left
  if (threadIdx.x % kWarpSize == 0) {
    const unsigned warp = threadIdx.x / kWarpSize;
    memory->values[warp] = best.value;
    memory->idxs[warp] = best.idx;
    memory->counts[warp] = num_bad;
  }
  __syncthreads();
  RowBest result = {{0, -1}, 0};
  for (int warp = 0; warp < kSelectWarps; ++warp) {
    result.best = Better(result.best, {memory->values[warp], memory->idxs[warp]});
    result.num_bad += memory->counts[warp];
  }
  return result;
}

__device__ inline RowBest FindBest(const float* x, int64_t size, SelectMemory* memory) {
  Best best = {0, -1};
  int32_t num_bad = 0;
  // One block reads the row, so its speed is that of the loads in flight.
  constexpr int kBatch = 16;
  for (int64_t base = threadIdx.x; base < size; base += kBatch * kSelectThreads) {
    float values[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t i = base + b * kSelectThreads;
      values[b] = i < size ? x[i] : -FLT_MAX;
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t i = base + b * kSelectThreads;
      num_bad += IsFinite(values[b]) ? 0 : 1;
      if (i < size && (best.idx < 0 || values[b] > best.value)) {
        best = {values[b], static_cast<int32_t>(i)};
      }
    }
  }
  return BlockBest(best, num_bad, memory);
}

// The same of a row in which the tokens that the mask does not allow become -infinity on the way;
// num_bad is of the row as it was.
__device__ inline RowBest MaskAndFindBest(float* x, int64_t size, const uint32_t* mask,
                                          SelectMemory* memory) {
  Best best = {0, -1};
  int32_t num_bad = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < size; i += kSelectThreads) {
    float value = x[i];
    num_bad += IsFinite(value) ? 0 : 1;
    if ((mask[i / 32] >> i % 32 & 1) == 0) x[i] = value = -INFINITY;
    best = Better(best, {value, static_cast<int32_t>(i)});
  }
  return BlockBest(best, num_bad, memory);
}

__device__ inline int32_t CountAtLeast(const float* x, int64_t size, float bound,
                                       SelectMemory* memory) {
  int32_t count = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < size; i += kSelectThreads) count += x[i] >= bound ? 1 : 0;
  count = WarpTotal(count);
  __syncthreads();
  if (threadIdx.x % kWarpSize == 0) memory->counts[threadIdx.x / kWarpSize] = count;
  __syncthreads();
  int32_t total = 0;
  for (int warp = 0; warp < kSelectWarps; ++warp) total += memory->counts[warp];
  return total;
}

struct Found {
  int64_t idx;
  Mass before;  // of the places before it
  Mass total;   // of all places
};

// The first of `size` places at which the running sum of mass_of(i) reaches wanted_of(total),
// clamped to [1, total]. The chunk in which it does is split among the warps again until it is one
// place.
template <class MassAt, class Wanted>
__device__ Found FindInOrder(int64_t size, MassAt mass_of, Wanted wanted_of, SelectMemory* memory) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int64_t begin = 0, end = size;
  Mass wanted = 0, before = 0, total = 0;
  for (bool is_first = true;; is_first = false) {
    const int64_t chunk = (end - begin + kSelectWarps - 1) / kSelectWarps;
    const int64_t chunk_end = std::min(begin + (warp + 1) * chunk, end);
    Mass sum = 0;
#pragma unroll 4
    for (int64_t i = begin + warp * chunk + lane; i < chunk_end; i += kWarpSize) sum += mass_of(i);
    sum = WarpTotal(sum);
    __syncthreads();
    if (lane == 0) memory->sums[warp] = sum;
    __syncthreads();
    if (is_first) {
      for (int w = 0; w < kSelectWarps; ++w) total += memory->sums[w];
      wanted = std::min(std::max(wanted_of(total), Mass{1}), total);
    }
    int reached = 0;
    while (reached < kSelectWarps - 1 && before + memory->sums[reached] < wanted) {
      before += memory->sums[reached++];
    }
    begin += reached * chunk;
    end = std::min(begin + chunk, end);
    if (chunk <= 1) return {begin, before, total};
  }
}

// Ascends as logits descend; both zeros have one key.
__device__ inline uint32_t FallingKey(float x) {
  const uint32_t bits = x == 0 ? 0 : std::bit_cast<uint32_t>(x);
  return ~(bits >> 31 != 0 ? ~bits : bits | 0x80000000u);
}
__device__ inline float LogitOfFallingKey(uint32_t key) {
  const uint32_t rising = ~key;
  return std::bit_cast<float>(rising >> 31 != 0 ? rising & 0x7fffffffu : ~rising);
}

struct Cut {
  float x;      // a logit of the line
  Mass before;  // of the larger ones
  Mass total;
};

// The logit down to which the mass_of(x) of a line reaches wanted_of(total), clamped to [1, total]:
// first its bin, by the distance to the largest (which spreads the likely logits, so that few
// threads meet at one counter), then within the bin its key, 8 bits at a time.
// bin_of(x) in [0, kNumBins) must not decrease as x decreases.
template <class BinOf, class MassAt, class Wanted>
__device__ Cut FindCut(const Line& line, BinOf bin_of, MassAt mass_of, Wanted wanted_of,
                       SelectMemory* memory) {
  Mass* bins = memory->bins;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kNumBins; i += kSelectThreads) bins[i] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < line.size; i += kSelectThreads) {
    const Mass mass = mass_of(line.x[i]);
    if (mass > 0) atomicAdd(&bins[bin_of(line.x[i])], mass);
  }
  const auto bin_mass = [bins](int64_t i) { return bins[i]; };
  __syncthreads();
  const Found bin = FindInOrder(kNumBins, bin_mass, wanted_of, memory);
  const Mass wanted = std::min(std::max(wanted_of(bin.total), Mass{1}), bin.total);
  Mass before = bin.before;
  uint32_t key = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < 256; i += kSelectThreads) bins[i] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < line.size; i += kSelectThreads) {
      const float x = line.x[i];
      if (bin_of(x) != bin.idx) continue;
      const uint32_t its_key = FallingKey(x);
      if (shift < 24 && its_key >> (shift + 8) != key) continue;
      const Mass mass = mass_of(x);
      if (mass > 0) atomicAdd(&bins[its_key >> shift & 0xff], mass);
    }
    __syncthreads();
    const Found digit = FindInOrder(
        256, bin_mass, [=](Mass) { return wanted - before; }, memory);
    before += digit.before;
    key = key << 8 | static_cast<uint32_t>(digit.idx);
  }
  return {LogitOfFallingKey(key), before, bin.total};
}

struct Gathered {
  bool has_all;     // every token of that weight found room
  int32_t count;    // of these tokens
  Mass mass;        // of these tokens
  Mass total_mass;  // of the row
};

// Makes the tokens whose weight is at least `least` and above 0 the block's candidates.
template <class WeightOf>
__device__ Gathered GatherCandidates(const float* x, int64_t size, WeightOf weight_of, float least,
                                     SelectMemory* memory) {
  constexpr int kBatch = 8;  // loads in flight
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t chunk = (size + kSelectWarps - 1) / kSelectWarps;
  const int64_t begin = warp * chunk, end = std::min(begin + chunk, size);
  float* out = memory->candidates + warp * kSegment;
  int32_t* out_ids = memory->candidate_ids + warp * kSegment;
  __syncthreads();
  int count = 0;
  Mass mass = 0, total_mass = 0;
  for (int64_t base = begin; base < end; base += kBatch * kWarpSize) {
    float values[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t i = base + b * kWarpSize + lane;
      values[b] = i < end ? x[i] : -INFINITY;
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const float weight = weight_of(values[b]);
      total_mass += MassOf(weight);
      const bool is_candidate = weight > 0 && weight >= least;
      const unsigned lanes = __ballot_sync(kAllLanes, is_candidate ? 1 : 0);
      if (is_candidate) {
        mass += MassOf(weight);
        const int place = count + __popc(lanes & ((1u << lane) - 1));
        if (place < kSegment) {
          out[place] = values[b];
          out_ids[place] = static_cast<int32_t>(base + b * kWarpSize + lane);
        }
      }
      count += __popc(lanes);
    }
  }
  for (int i = count + lane; i < kSegment; i += kWarpSize) {
    out[i] = -INFINITY;
    out_ids[i] = 0;
  }
  mass = WarpTotal(mass);
  total_mass = WarpTotal(total_mass);
  if (lane == 0) {
    memory->sums[warp] = total_mass;
    memory->more_sums[warp] = mass;
    memory->counts[warp] = count;
  }
  __syncthreads();
  Gathered result = {true, 0, 0, 0};
  for (int w = 0; w < kSelectWarps; ++w) {
    result.total_mass += memory->sums[w];
    result.mass += memory->more_sums[w];
    result.count += memory->counts[w];
    result.has_all = result.has_all && memory->counts[w] <= kSegment;
  }
  return result;
}

}  // namespace tandem
