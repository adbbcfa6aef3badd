#include "engine_core/speculation/ngram_drafter.h"

#include <algorithm>

namespace tandem {

void NgramDrafter::Propose(int32_t slot, std::span<const TokenId> tokens, int32_t most,
                           std::vector<TokenId>* drafts) {
  // Also without room for drafts: a long stretch is not left for later.
  const int32_t place = indices_[static_cast<size_t>(slot)].Find(tokens);
  if (place < 0 || most <= 0) return;
  const std::span<const TokenId> followers = tokens.subspan(static_cast<size_t>(place));
  const auto kept = followers.first(std::min(static_cast<size_t>(most), followers.size()));
  drafts->assign(kept.begin(), kept.end());
}

}  // namespace tandem
