#include "frontend/text/bpe.h"

#include <algorithm>
#include <cstring>

#include "common/utf8.h"

namespace tandem {
namespace {

// Up to here a scan over all pairs for each merge beats a heap.
constexpr size_t kShortSymbols = 48;

// Symbols that are merged at a time in a longer piece: few enough for the cache, and several times
// the longest token.
constexpr size_t kMinWindow = 1024;
constexpr size_t kMaxWindow = 16384;

}  // namespace

StatusOr<Bpe> Bpe::Create(Vocabulary vocabulary, const std::vector<Merge>& merges,
                          BpeOptions options) {
  Bpe bpe;
  bpe.vocabulary_ = std::move(vocabulary);
  bpe.options_ = std::move(options);
  const std::string& prefix = bpe.options_.continuing_prefix;
  bpe.has_affixes_ = !prefix.empty() || !bpe.options_.end_suffix.empty();
  bpe.whole_ = std::make_unique<std::atomic<Whole>[]>(bpe.vocabulary_.size());
  bpe.merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto left_id = bpe.vocabulary_.Find(left);
    const auto right_id = bpe.vocabulary_.Find(right);
    const size_t prefix_size = std::min(prefix.size(), right.size());
    const auto id = bpe.vocabulary_.Find(left + right.substr(prefix_size));
    if (!left_id || !right_id || !id) {
      return InvalidArgumentError("merge " + std::to_string(rank) +
                                  " names a token that the vocabulary lacks");
    }
    const uint64_t key = static_cast<uint64_t>(*left_id) << 32 | static_cast<uint32_t>(*right_id);
    // Of a pair listed twice the later rank counts, as in `tokenizers`.
    bpe.merges_[key] = {static_cast<uint32_t>(rank), *id};
  }
  bpe.FinishTables();
  return bpe;
}

void Bpe::FinishTables() {
  size_t longest = 0;
  for (TokenId id = 0; id < vocabulary_.size(); ++id) {
    longest = std::max(longest, vocabulary_.Text(id).size());
  }
  window_symbols_ = std::clamp(longest * 16, kMinWindow, kMaxWindow);
  for (int byte = 0; byte < 256; ++byte) {
    const auto id =
        vocabulary_.Find(options_.byte_level ? std::string(1, static_cast<char>(byte))
                                             : ByteTokenText(static_cast<unsigned char>(byte)));
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
  bpe.FinishTables();
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
  MergeLong(symbols, ids);
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

// ---- Long pieces ----

// One merged stretch of symbols.
struct Bpe::Window {
  // Token i has the symbols from borders[i] to borders[i + 1]; its id is tokens[borders[i]].
  std::vector<uint32_t> borders;
  std::vector<TokenId> tokens;

  // The rest is scratch. Of the pair that begins at a position: its rank and what it makes.
  std::vector<Merged> pairs;
  std::vector<int32_t> next;
  std::vector<int32_t> previous;
  // Pairs to merge as rank << 32 | position, those of the start sorted and later ones as a heap. An
  // entry is out of date unless the pair has that rank.
  std::vector<uint64_t> first;
  std::vector<uint64_t> heap;
};

void Bpe::MergeWindow(std::span<const TokenId> symbols, Window* window) const {
  const auto count = static_cast<int32_t>(symbols.size());
  auto& [borders, tokens, pairs, next, previous, first, heap] = *window;
  tokens.assign(symbols.begin(), symbols.end());
  pairs.assign(symbols.size(), {});
  next.resize(symbols.size());
  previous.resize(symbols.size());
  heap.clear();
  first.clear();
  for (int32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
    if (i + 1 == count) break;
    pairs[i] = Find(tokens[i], tokens[i + 1]);
    if (pairs[i].rank != kNoRank) first.push_back(uint64_t{pairs[i].rank} << 32 | i);
  }
  std::sort(first.begin(), first.end());
  // Named one by one: clang 14 captures no structured bindings by default.
  const auto offer = [this, count, &tokens = tokens, &pairs = pairs, &next = next,
                      &heap = heap](int32_t pos) {
    if (pos < 0) return;
    pairs[pos] = next[pos] < count ? Find(tokens[pos], tokens[next[pos]]) : Merged();
    if (pairs[pos].rank == kNoRank) return;
    heap.push_back(uint64_t{pairs[pos].rank} << 32 | static_cast<uint32_t>(pos));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  size_t num_taken = 0;  // of `first`
  while (num_taken < first.size() || !heap.empty()) {
    uint64_t top = heap.empty() ? UINT64_MAX : heap.front();
    if (num_taken < first.size() && first[num_taken] < top) {
      top = first[num_taken++];
    } else {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      heap.pop_back();
    }
    const auto pos = static_cast<int32_t>(top & UINT32_MAX);
    if (pairs[pos].rank != top >> 32) continue;
    tokens[pos] = pairs[pos].id;
    const int32_t right = next[pos];
    pairs[right].rank = kNoRank;  // merged away
    next[pos] = next[right];
    if (next[right] < count) previous[next[right]] = pos;
    offer(previous[pos]);
    offer(pos);
  }
  borders.clear();
  for (int32_t i = 0; i < count; i = next[i]) borders.push_back(i);
  borders.push_back(count);
}

// Merging is local: a stretch between two borders that no merge crosses gives the same tokens by
// itself. So tokens are those of the whole text if each pair of neighbours stays apart when it is
// encoded alone. Windows are merged from left to right; the last tokens of each, which what follows
// may change, are given up. The next window begins at the last token that was kept: when it comes
// out as it was, the two windows fit together. Windows in a run of one symbol are alike and so are
// their tokens: one is merged for all of them, and a smaller one will do.
void Bpe::MergeLong(std::span<const TokenId> symbols, std::vector<TokenId>* ids) const {
  size_t given_up = 2;  // more once that was too few
  const size_t first_id = ids->size();
  std::vector<size_t> borders = {0};  // of the tokens that are kept
  Window windows[2];                  // of a run, of others
  size_t run_size = 0;
  TokenId run_symbol = -1;
  for (size_t end = 0; borders.back() < symbols.size();) {
    const size_t num_kept = borders.size() - 1;
    const size_t num_again = std::min<size_t>(num_kept, 1);
    const size_t begin = borders[num_kept - num_again];
    const size_t small_end = std::min(std::max(end, begin + window_symbols_ / 4), symbols.size());
    const bool is_run = std::all_of(symbols.begin() + static_cast<std::ptrdiff_t>(begin),
                                    symbols.begin() + static_cast<std::ptrdiff_t>(small_end),
                                    [&](TokenId symbol) { return symbol == symbols[begin]; });
    end = is_run ? small_end : std::min(std::max(end, begin + window_symbols_), symbols.size());
    Window& window = windows[is_run ? 0 : 1];
    const bool is_known = is_run && run_size == end - begin && run_symbol == symbols[begin];
    if (!is_known) MergeWindow(symbols.subspan(begin, end - begin), &window);
    if (is_run) {
      run_size = end - begin;
      run_symbol = symbols[begin];
    }
    if (begin + window.borders[num_again] != borders.back()) {
      const size_t num_left = num_kept - std::min(given_up, num_kept);
      borders.resize(num_left + 1);
      ids->resize(first_id + num_left);
      given_up *= 2;
      continue;
    }
    size_t num_tokens = window.borders.size() - 1;
    if (end < symbols.size()) num_tokens -= std::min(given_up, (num_tokens - num_again) / 2);
    for (size_t i = num_again; i < num_tokens; ++i) {
      ids->push_back(window.tokens[window.borders[i]]);
      borders.push_back(begin + window.borders[i + 1]);
    }
    if (num_tokens == num_again) end += end - begin;  // the tokens are longer than the window
  }
}

}  // namespace tandem
