#pragma once

// A KV cache of a few bytes a block in host memory, for what moves blocks without a model: three
// layers of one head of two numbers, blocks of 4 tokens, in float32, as the reference backend lays
// it out. Thread: the test's.

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/host_memory.h"
#include "kernels/kv_caches.h"

namespace tandem {

constexpr int kSmallKvLayers = 3;
constexpr int64_t kSmallKvPartBytes = 32;  // K or V of one layer
constexpr int64_t kSmallKvBlockBytes = 2 * kSmallKvLayers * kSmallKvPartBytes;

inline int64_t KeyBytesOfBlock(int num_kv_heads, int head_dim) {
  return int64_t{4 * sizeof(float)} * num_kv_heads * head_dim;
}

inline std::unique_ptr<KvCache> MakeSmallKvCache(int64_t num_blocks) {
  const int64_t units = kSmallKvBlockBytes / 4 * num_blocks;
  const KvCacheSpec spec = {.num_layers = kSmallKvLayers,
                            .num_kv_heads = 1,
                            .head_dim = 2,
                            .block_size = 4,
                            .num_blocks = num_blocks};
  return std::make_unique<KvCache>(spec, AllocateHost(DType::kI32, {&units, 1}).value(),
                                   KeyBytesOfBlock);
}

}  // namespace tandem
