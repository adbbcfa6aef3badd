#pragma once

// The KV caches of all ranks of a model, seen from one process: together they are the model's, and
// a block has the same number in each. For what moves blocks; steps have one cache alone.
// Values, any thread, with views of caches in host memory.

#include <cstddef>
#include <vector>

#include "kernels/paged_kv.h"
#include "kernels/slice.h"

namespace tandem {

// Of a run of the model's layers, and of each a run of its KV heads.
struct KvCachePart {
  const KvCache* cache = nullptr;
  int first_layer = 0;               // of the model
  std::vector<Slice> kv_heads = {};  // by layer of the cache; empty: all that the model has
};
using KvCaches = std::vector<KvCachePart>;  // by rank

// All of a cache. REQUIRES: its first layer has keys.
inline std::byte* MemoryOf(const KvCache& cache) {
  return static_cast<std::byte*>(cache.layer(0).k);
}

}  // namespace tandem
