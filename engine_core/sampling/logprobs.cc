#include "engine_core/sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine_core/sampling/row_math.h"

namespace tandem {
namespace {

// Puts the ids of the k largest logits into *heap, best first.
void TopTokens(std::span<const float> logits, size_t k, std::vector<TokenId>* heap) {
  const auto better = [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  heap->clear();
  if (k == 0) return;
  // A heap whose front is the worst of the best k so far. Ids come in ascending order, so a token
  // that only equals the front is never better than it.
  for (size_t i = 0; i < logits.size(); ++i) {
    if (heap->size() < k) {
      heap->push_back(static_cast<TokenId>(i));
      std::push_heap(heap->begin(), heap->end(), better);
    } else if (logits[i] > logits[static_cast<size_t>(heap->front())]) {
      std::pop_heap(heap->begin(), heap->end(), better);
      heap->back() = static_cast<TokenId>(i);
      std::push_heap(heap->begin(), heap->end(), better);
    }
  }
  std::sort_heap(heap->begin(), heap->end(), better);
}

}  // namespace

void FillLogprobsOf(std::span<const float> logits, bool normalized, TokenId chosen,
                    std::span<const TokenId> token_ids, const LogprobsRow& out) {
  const double log_sum = normalized ? LogSumExp(logits) : 0;
  const auto logprob = [&](TokenId id) {
    return static_cast<float>(logits[static_cast<size_t>(id)] - log_sum);
  };
  out.token_ids[0] = chosen;
  out.logprobs[0] = logprob(chosen);
  *out.rank = CountAtLeast(logits, logits[static_cast<size_t>(chosen)]);
  for (size_t i = 0; i < token_ids.size(); ++i) {
    out.token_ids[i + 1] = token_ids[i];
    out.logprobs[i + 1] = logprob(token_ids[i]);
  }
}

void FillTopLogprobs(std::span<const float> logits, bool normalized, TokenId chosen,
                     const LogprobsRow& out, std::vector<TokenId>* heap) {
  TopTokens(logits, out.token_ids.size() - 1, heap);
  FillLogprobsOf(logits, normalized, chosen, *heap, out);
}

void FillScoresOf(std::span<const float> logits, bool normalized,
                  std::span<const TokenId> token_ids, std::span<float> out) {
  const double log_sum = normalized ? LogSumExp(logits) : 0;
  for (size_t i = 0; i < token_ids.size(); ++i) {
    const TokenId id = token_ids[i];
    out[i] = id < 0 ? -std::numeric_limits<float>::infinity()
                    : static_cast<float>(logits[static_cast<size_t>(id)] - log_sum);
  }
}

}  // namespace tandem
