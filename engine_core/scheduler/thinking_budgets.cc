#include "engine_core/scheduler/thinking_budgets.h"

#include "common/check.h"
#include "engine_core/scheduler/model_output.h"

namespace tandem {
namespace {

constexpr int32_t kBitsPerWord = 32;

void FlipBit(TokenId token_id, std::vector<int32_t>* words) {
  (*words)[static_cast<size_t>(token_id / kBitsPerWord)] ^=
      static_cast<int32_t>(1u << (token_id % kBitsPerWord));
}

}  // namespace

void ThinkingBudgets::ApplyBudget(const Request& request, int32_t request_idx,
                                  SchedulerOutput* output) {
  // While tokens are in flight none must be forced: MustWait. What a grammar holds is no reasoning.
  if (request.num_output_placeholders > 0 || request.has_grammar_begun()) return;
  const TokenId forced = request.reasoning.ForcedToken(request.token_ids);
  if (forced == kNoToken) return;
  CHECK(forced >= 0 && forced < vocab_size_) << request.id() << " forces token " << forced;
  if (num_masks_ == masks_.size()) {
    const auto num_words = static_cast<size_t>((vocab_size_ + kBitsPerWord - 1) / kBitsPerWord);
    masks_.push_back({std::vector<int32_t>(num_words), forced});
  } else {
    FlipBit(masks_[num_masks_].token_id, &masks_[num_masks_].words);
    masks_[num_masks_].token_id = forced;
  }
  Mask& mask = masks_[num_masks_++];
  FlipBit(forced, &mask.words);
  output->token_masks.push_back({.request_idx = request_idx, .words = mask.words});
}

}  // namespace tandem
