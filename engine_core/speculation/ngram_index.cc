#include "engine_core/speculation/ngram_index.h"

#include <algorithm>

#include "common/check.h"
#include "common/random.h"

namespace tandem {
namespace {

constexpr size_t kFewestEntries = 64;

uint64_t AddToHash(uint64_t hash, TokenId token) {
  return (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15;
}

// The run of `length` tokens that ends at `end`.
std::span<const TokenId> Run(std::span<const TokenId> tokens, int32_t end, int32_t length) {
  return tokens.subspan(static_cast<size_t>(end - length), static_cast<size_t>(length));
}

}  // namespace

NgramIndex::NgramIndex(int32_t min_tokens, int32_t max_tokens, uint64_t seed)
    : min_tokens_(min_tokens),
      max_tokens_(max_tokens),
      seed_(seed),
      tables_(static_cast<size_t>(max_tokens - min_tokens + 1)) {
  CHECK(1 <= min_tokens && min_tokens <= max_tokens) << min_tokens << " " << max_tokens;
}

void NgramIndex::Clear() {
  num_taken_ = 0;
  for (Table& table : tables_) table = {};
}

int32_t NgramIndex::Find(std::span<const TokenId> tokens) {
  const auto end = static_cast<int32_t>(tokens.size());
  if (end == 0) return -1;
  // The last position is entered again: it is found at itself, if nowhere else.
  int32_t found = end;
  for (int32_t e = std::min(num_taken_ + 1, end); e <= end; ++e) found = EnterAll(tokens, e);
  num_taken_ = end;
  return found < end ? found : -1;
}

int32_t NgramIndex::EnterAll(std::span<const TokenId> tokens, int32_t end) {
  int32_t found = end;
  uint64_t hash = seed_;
  for (int32_t length = 1; length <= std::min(max_tokens_, end); ++length) {
    hash = AddToHash(hash, tokens[static_cast<size_t>(end - length)]);
    if (length < min_tokens_) continue;
    const int32_t first = Enter(tokens, end, length, hash);
    if (first < end) found = first;
  }
  return found;
}

int32_t NgramIndex::Enter(std::span<const TokenId> tokens, int32_t end, int32_t length,
                          uint64_t hash) {
  Table& table = tables_[static_cast<size_t>(length - min_tokens_)];
  if (2 * (table.num_used + 1) > table.ends.size()) Grow(tokens, length, &table);
  const size_t mask = table.ends.size() - 1;
  for (size_t i = MixBits(hash) & mask;; i = (i + 1) & mask) {
    int32_t& entry = table.ends[i];
    if (entry == 0) {
      ++table.num_used;
      return entry = end;
    }
    if (entry == end || std::ranges::equal(Run(tokens, entry, length), Run(tokens, end, length))) {
      return entry;
    }
  }
}

void NgramIndex::Grow(std::span<const TokenId> tokens, int32_t length, Table* table) {
  const std::vector<int32_t> before = std::move(table->ends);
  table->ends.assign(std::max(kFewestEntries, 2 * before.size()), 0);
  table->num_used = 0;
  for (const int32_t end : before) {
    if (end == 0) continue;
    uint64_t hash = seed_;
    for (int32_t i = 1; i <= length; ++i) {
      hash = AddToHash(hash, tokens[static_cast<size_t>(end - i)]);
    }
    Enter(tokens, end, length, hash);
  }
}

}  // namespace tandem
