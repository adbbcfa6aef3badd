#include "frontend/text/unigram.h"

#include <algorithm>
#include <limits>
#include <map>

#include "common/utf8.h"
#include "frontend/text/vocabulary.h"

namespace tandem {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the lowest score; SentencePiece's constant

}  // namespace

StatusOr<Unigram> Unigram::Create(const std::vector<std::pair<std::string, double>>& tokens,
                                  UnigramOptions options) {
  if (options.unknown_id && static_cast<size_t>(*options.unknown_id) >= tokens.size()) {
    return InvalidArgumentError("unk_id " + std::to_string(*options.unknown_id) +
                                " is outside the vocabulary of " + std::to_string(tokens.size()));
  }
  Unigram unigram;
  unigram.options_ = options;
  double lowest = std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::string, int32_t>> entries;
  std::map<std::string_view, TokenId> names;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const auto& [text, score] = tokens[id];
    unigram.scores_.push_back(score);
    const bool usable = options.usable.empty() || options.usable[id];
    if (usable) lowest = std::min(lowest, score);
    if (usable && !text.empty()) entries.emplace_back(text, static_cast<int32_t>(id));
    names.emplace(text, static_cast<TokenId>(id));
  }
  unigram.unknown_score_ = lowest - kUnknownPenalty;
  unigram.trie_ = ByteTrie(entries);
  for (int byte = 0; byte < 256; ++byte) {
    const auto it = names.find(ByteTokenText(static_cast<unsigned char>(byte)));
    unigram.byte_ids_[byte] = it == names.end() ? -1 : it->second;
  }
  return unigram;
}

inline void Unigram::Offer(double score, TokenId id, size_t begin, Best* best) const {
  if (options_.single_precision) score = static_cast<float>(score);
  if (best->begin >= 0 && score <= best->score) return;
  *best = {score, id, static_cast<int32_t>(begin)};
}

Status Unigram::Encode(std::string_view piece, std::vector<TokenId>* ids) const {
  std::vector<Best> best(piece.size() + 1);
  for (size_t begin = 0; begin < piece.size();) {
    size_t next = begin;
    NextUtf8(piece, &next);
    bool is_token = false;  // the character
    const double score = best[begin].score;
    uint32_t node = ByteTrie::root();
    for (size_t end = begin; end < piece.size();) {
      node = trie_.Child(node, piece[end++]);
      if (node == ByteTrie::kNone) break;
      const TokenId id = trie_.Value(node);
      if (id < 0) continue;
      Offer(score + scores_[id], id, begin, &best[end]);
      is_token = is_token || end == next;
    }
    if (!is_token) {
      if (!options_.unknown_id) {
        return InvalidArgumentError("the text has the character \"" +
                                    std::string(piece.substr(begin, next - begin)) +
                                    "\", and the tokenizer has no token for unknown ones");
      }
      Offer(score + unknown_score_, *options_.unknown_id, begin, &best[next]);
    }
    begin = next;
  }
  // From the end to the start; characters that are unknown side by side are one token.
  const size_t first = ids->size();
  for (size_t end = piece.size(); end > 0;) {
    const Best& last = best[end];
    auto begin = static_cast<size_t>(last.begin);
    if (last.id != options_.unknown_id) {
      ids->push_back(last.id);
    } else {
      while (begin > 0 && best[begin].id == options_.unknown_id) {
        begin = static_cast<size_t>(best[begin].begin);
      }
      AppendUnknown(piece.substr(begin, end - begin), ids);
    }
    end = begin;
  }
  std::reverse(ids->begin() + static_cast<std::ptrdiff_t>(first), ids->end());
  return OkStatus();
}

// Appends in reverse.
void Unigram::AppendUnknown(std::string_view text, std::vector<TokenId>* ids) const {
  if (const auto [id, size] = trie_.Longest(text); size == text.size()) {
    ids->push_back(id);  // the unknown token's own spelling
    return;
  }
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (!options_.byte_fallback ||
      std::any_of(text.begin(), text.end(), [&](char byte) { return byte_id(byte) < 0; })) {
    ids->push_back(*options_.unknown_id);
    return;
  }
  for (size_t i = text.size(); i-- > 0;) ids->push_back(byte_id(text[i]));
}

}  // namespace tandem
