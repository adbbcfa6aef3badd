#pragma once

// Lends a SamplerScratch to each thread that samples rows at the same time.
// Thread: Claim and Release from any thread of the compute pool, without a lock.
// REQUIRES: at most `size` threads hold one at once. The choice of scratch changes no result.

#include <atomic>
#include <memory>
#include <vector>

#include "engine_core/sampling/sampler.h"

namespace tandem {

class ScratchPool {
 public:
  ScratchPool(size_t size, size_t vocab_size)
      : scratch_(size), taken_(std::make_unique<std::atomic_flag[]>(size)) {
    for (SamplerScratch& scratch : scratch_) scratch.Reserve(vocab_size);
  }

  size_t Claim() {
    for (size_t i = 0;; i = (i + 1) % scratch_.size()) {
      if (!taken_[i].test_and_set(std::memory_order_acquire)) return i;
    }
  }
  void Release(size_t i) { taken_[i].clear(std::memory_order_release); }
  SamplerScratch* operator[](size_t i) { return &scratch_[i]; }

 private:
  std::vector<SamplerScratch> scratch_;
  std::unique_ptr<std::atomic_flag[]> taken_;
};

}  // namespace tandem
