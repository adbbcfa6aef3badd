#pragma once

// Guesses what follows the tokens of requests, from tokens alone. Two implementations: NgramDrafter
// and SuffixDrafter. Thread: engine loop. A request is named by its slot.

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"

namespace tandem {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // A request starts in this slot, with num_known tokens that it brings.
  virtual void Begin(int32_t slot, int32_t num_known) = 0;
  // It has left.
  virtual void End(int32_t slot) = 0;
  // Puts up to `most` guesses of what follows its tokens into *drafts, which is empty. The tokens
  // are those of the last call and others after them.
  virtual void Propose(int32_t slot, std::span<const TokenId> tokens, int32_t most,
                       std::vector<TokenId>* drafts) = 0;
};

}  // namespace tandem
