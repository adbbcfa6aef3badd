#pragma once

// The drafts of method ngram: what followed the last tokens of a request where they occurred first
// in it. Thread: engine loop. Owns an index of each slot's request.

#include "engine_core/speculation/drafter.h"
#include "engine_core/speculation/ngram_index.h"

namespace tandem {

class NgramDrafter final : public Drafter {
 public:
  // As NgramIndex.
  NgramDrafter(int32_t num_slots, int32_t min_tokens, int32_t max_tokens, uint64_t seed)
      : indices_(static_cast<size_t>(num_slots), NgramIndex(min_tokens, max_tokens, seed)) {}

  void Begin(int32_t slot, int32_t) override { indices_[static_cast<size_t>(slot)].Clear(); }
  void End(int32_t slot) override { indices_[static_cast<size_t>(slot)].Clear(); }
  void Propose(int32_t slot, std::span<const TokenId> tokens, int32_t most,
               std::vector<TokenId>* drafts) override;

 private:
  std::vector<NgramIndex> indices_;
};

}  // namespace tandem
