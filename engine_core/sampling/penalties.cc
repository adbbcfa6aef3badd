#include "engine_core/sampling/penalties.h"

#include <algorithm>

#include "common/check.h"

namespace tandem {
namespace {

constexpr int32_t kInPrompt = 1;
constexpr int32_t kOneOutput = 2;

}  // namespace

void TokenCounts::Reset(int64_t vocab_size, int64_t max_tokens) {
  if (counts_.size() != static_cast<size_t>(vocab_size)) {
    counts_.assign(static_cast<size_t>(vocab_size), 0);
  }
  for (const TokenId id : seen_) counts_[static_cast<size_t>(id)] = 0;
  seen_.clear();
  seen_.reserve(static_cast<size_t>(std::min(vocab_size, max_tokens)));
}

void TokenCounts::Add(TokenId token_id, int32_t change) {
  CHECK(token_id >= 0 && static_cast<size_t>(token_id) < counts_.size()) << token_id;
  int32_t& count = counts_[static_cast<size_t>(token_id)];
  if (count == 0) seen_.push_back(token_id);
  count = change == kInPrompt ? count | kInPrompt : count + change;
}

void TokenCounts::AddPrompt(std::span<const TokenId> token_ids) {
  for (const TokenId id : token_ids) Add(id, kInPrompt);
}

void TokenCounts::AddOutput(TokenId token_id) { Add(token_id, kOneOutput); }

void TokenCounts::Apply(float repetition, float frequency, float presence,
                        std::span<float> logits) const {
  for (const TokenId id : seen_) {
    float& x = logits[static_cast<size_t>(id)];
    x = x > 0 ? x / repetition : x * repetition;
    const int32_t occurrences = counts_[static_cast<size_t>(id)] / kOneOutput;
    if (occurrences > 0) x -= frequency * static_cast<float>(occurrences) + presence;
  }
}

}  // namespace tandem
