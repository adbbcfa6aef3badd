#include "frontend/text/bpe.h"

#include <cstdio>
#include <cstring>
#include <queue>

#include "common/utf8.h"

namespace tandem {
namespace {

// Up to here a scan over all pairs for each merge beats a heap.
constexpr size_t kShortSymbols = 48;

}  // namespace

StatusOr<Bpe> Bpe::Create(Vocabulary vocabulary, const std::vector<Merge>& merges,
                          BpeOptions options) {
  Bpe bpe;
  bpe.vocabulary_ = std::move(vocabulary);
  bpe.options_ = options;
  bpe.has_affixes_ = !options.continuing_prefix.empty() || !options.end_suffix.empty();
  bpe.whole_ = std::make_unique<std::atomic<Whole>[]>(bpe.vocabulary_.size());
  bpe.merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto left_id = bpe.vocabulary_.Find(left);
    const auto right_id = bpe.vocabulary_.Find(right);
    const size_t prefix_size = std::min(options.continuing_prefix.size(), right.size());
    const auto id = bpe.vocabulary_.Find(left + right.substr(prefix_size));
    if (!left_id || !right_id || !id) {
      return InvalidArgumentError("merge " + std::to_string(rank) +
                                  " names a token that the vocabulary lacks");
    }
    const uint64_t key = static_cast<uint64_t>(*left_id) << 32 | static_cast<uint32_t>(*right_id);
    // Of a pair listed twice the later rank counts, as in `tokenizers`.
    bpe.merges_[key] = {static_cast<uint32_t>(rank), *id};
  }
  bpe.FindByteIds();
  return bpe;
}

void Bpe::FindByteIds() {
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    const auto id = options_.byte_level ? vocabulary_.Find(std::string(1, static_cast<char>(byte)))
                                        : vocabulary_.Find(name);
    byte_ids_[byte] = id.value_or(-1);
  }
}

Bpe Bpe::FromRanks(Vocabulary vocabulary, const std::vector<uint32_t>& ranks, BpeOptions options) {
  Bpe bpe;
  bpe.vocabulary_ = std::move(vocabulary);
  bpe.options_ = std::move(options);
  bpe.whole_ = std::make_unique<std::atomic<Whole>[]>(bpe.vocabulary_.size());
  for (TokenId id = 0; id < bpe.vocabulary_.size(); ++id) {
    if (ranks[id] == kNoRank) continue;
    const std::string_view text = bpe.vocabulary_.Text(id);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if (!bpe.options_.byte_level && IsUtf8Continuation(text[cut])) continue;
      const auto left = bpe.vocabulary_.Find(text.substr(0, cut));
      const auto right = bpe.vocabulary_.Find(text.substr(cut));
      if (!left || !right) continue;
      bpe.merges_[static_cast<uint64_t>(*left) << 32 | static_cast<uint32_t>(*right)] = {ranks[id],
                                                                                         id};
    }
  }
  bpe.FindByteIds();
  return bpe;
}

inline Bpe::Merged Bpe::Find(TokenId left, TokenId right) const {
  const auto it = merges_.find(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right));
  return it == merges_.end() ? Merged() : it->second;
}

Status Bpe::Encode(std::string_view piece, std::vector<TokenId>* ids) const {
  if (piece.empty()) return OkStatus();
  if (const auto id = vocabulary_.Find(piece); id.has_value()) {
    if (options_.ignore_merges || IsReachable(*id, piece)) {
      ids->push_back(*id);
      return OkStatus();
    }
  }
  EncodeByMerging(piece, ids);
  return OkStatus();
}

bool Bpe::IsReachable(TokenId id, std::string_view piece) const {
  // Relaxed is enough: every thread that computes the answer finds the same one.
  Whole whole = whole_[id].load(std::memory_order_relaxed);
  if (whole == Whole::kUnknown) {
    std::vector<TokenId> ids;
    EncodeByMerging(piece, &ids);
    whole = ids.size() == 1 && ids[0] == id ? Whole::kYes : Whole::kNo;
    whole_[id].store(whole, std::memory_order_relaxed);
  }
  return whole == Whole::kYes;
}

void Bpe::EncodeByMerging(std::string_view piece, std::vector<TokenId>* ids) const {
  if (options_.byte_level && piece.size() <= kShortSymbols) {
    TokenId symbols[kShortSymbols];
    size_t count = 0;
    bool known = true;
    for (const char byte : piece) {
      symbols[count] = byte_ids_[static_cast<unsigned char>(byte)];
      known = known && symbols[count++] >= 0;
    }
    if (known) return MergeShort(symbols, count, ids);
  }
  std::vector<TokenId> symbols;
  symbols.reserve(piece.size());
  AppendSymbols(piece, &symbols);
  if (symbols.size() <= kShortSymbols) return MergeShort(symbols.data(), symbols.size(), ids);
  MergeLong(std::move(symbols), ids);
}

std::string Bpe::WithAffixes(std::string_view symbol, bool continues, bool ends) const {
  std::string spelled = continues ? options_.continuing_prefix : "";
  spelled += symbol;
  return ends ? spelled + options_.end_suffix : spelled;
}

void Bpe::AppendSymbols(std::string_view piece, std::vector<TokenId>* symbols) const {
  // An unknown token waits for the next known or unknown symbol, but not for byte tokens: that is
  // the order in which `tokenizers` writes them.
  bool unknown_waits = false;
  const auto flush = [&] {
    if (unknown_waits) symbols->push_back(*options_.unknown_id);
    unknown_waits = false;
  };
  for (size_t pos = 0; pos < piece.size();) {
    const size_t begin = pos;
    TokenId id = -1;
    if (options_.byte_level) {
      id = byte_ids_[static_cast<unsigned char>(piece[pos++])];
    } else {
      NextUtf8(piece, &pos);
      const std::string_view symbol = piece.substr(begin, pos - begin);
      id = (has_affixes_ ? vocabulary_.Find(WithAffixes(symbol, begin > 0, pos == piece.size()))
                         : vocabulary_.Find(symbol))
               .value_or(-1);
    }
    if (id >= 0) {
      flush();
      symbols->push_back(id);
      continue;
    }
    if (options_.byte_fallback) {
      bool all = true;
      for (size_t i = begin; i < pos; ++i) {
        all = all && byte_ids_[static_cast<unsigned char>(piece[i])] >= 0;
      }
      if (all) {
        for (size_t i = begin; i < pos; ++i) {
          symbols->push_back(byte_ids_[static_cast<unsigned char>(piece[i])]);
        }
        continue;
      }
    }
    if (!options_.unknown_id.has_value()) continue;
    if (!options_.fuse_unknown) flush();
    unknown_waits = true;
  }
  flush();
}

void Bpe::MergeShort(TokenId* symbols, size_t count, std::vector<TokenId>* ids) const {
  Merged pairs[kShortSymbols];  // pairs[i]: what symbols i and i + 1 make
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = Find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoRank) break;
    symbols[best] = pairs[best].id;
    std::memmove(symbols + best + 1, symbols + best + 2, (count - best - 2) * sizeof *symbols);
    if (best + 2 < count) {
      std::memmove(pairs + best, pairs + best + 1, (count - best - 2) * sizeof *pairs);
    }
    --count;
    if (best + 1 < count) pairs[best] = Find(symbols[best], symbols[best + 1]);
    if (best > 0) pairs[best - 1] = Find(symbols[best - 1], symbols[best]);
  }
  ids->insert(ids->end(), symbols, symbols + count);
}

void Bpe::MergeLong(std::vector<TokenId> symbols, std::vector<TokenId>* ids) const {
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<int32_t> next(count);
  std::vector<int32_t> previous(count);
  struct Candidate {
    uint32_t rank;
    int32_t pos;
    TokenId left, right;  // what stood there when it was found; anything else is out of date
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : pos > other.pos;
    }
  };
  std::vector<Candidate> found;
  found.reserve(count);
  for (int32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : -1;
    previous[i] = i - 1;
    if (i + 1 == count) break;
    const Merged merged = Find(symbols[i], symbols[i + 1]);
    if (merged.rank != kNoRank) found.push_back({merged.rank, i, symbols[i], symbols[i + 1]});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(),
                                                                               std::move(found));
  const auto offer = [&](int32_t pos) {
    if (pos < 0 || next[pos] < 0) return;
    const Merged merged = Find(symbols[pos], symbols[next[pos]]);
    if (merged.rank != kNoRank) {
      queue.push({merged.rank, pos, symbols[pos], symbols[next[pos]]});
    }
  };
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const int32_t right = next[top.pos];
    if (symbols[top.pos] != top.left || right < 0 || symbols[right] != top.right) continue;
    symbols[top.pos] = Find(top.left, top.right).id;
    symbols[right] = -1;  // merged away: no candidate names it any more
    next[top.pos] = next[right];
    if (next[right] >= 0) previous[next[right]] = top.pos;
    offer(previous[top.pos]);
    offer(top.pos);
  }
  for (int32_t i = 0; i >= 0 && i < count; i = next[i]) ids->push_back(symbols[i]);
}

}  // namespace tandem
