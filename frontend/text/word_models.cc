#include "frontend/text/word_models.h"

#include <utility>

#include "common/utf8.h"

namespace tandem {
namespace {

Status AppendUnknown(std::optional<TokenId> unknown_id, std::string_view word,
                     std::vector<TokenId>* ids) {
  if (!unknown_id) {
    return InvalidArgumentError("the text has the word \"" + std::string(word) +
                                "\", and the tokenizer has no token for unknown ones");
  }
  ids->push_back(*unknown_id);
  return OkStatus();
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, WordPieceModelOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {}

Status WordPiece::Encode(std::string_view piece, std::vector<TokenId>* ids) const {
  // A byte is at most one character.
  if (piece.size() > options_.max_chars_per_word &&
      CountUtf8(piece) > options_.max_chars_per_word) {
    return AppendUnknown(options_.unknown_id, piece, ids);
  }
  const size_t first = ids->size();
  std::string spelled;
  for (size_t begin = 0; begin < piece.size();) {
    spelled = begin > 0 ? options_.continuing_prefix : "";
    const size_t prefix_size = spelled.size();
    spelled += piece.substr(begin);
    std::optional<TokenId> id;
    while (spelled.size() > prefix_size && !(id = vocabulary_.Find(spelled))) {
      while (IsUtf8Continuation(spelled.back())) spelled.pop_back();
      spelled.pop_back();
    }
    if (!id) {
      ids->resize(first);
      return AppendUnknown(options_.unknown_id, piece, ids);
    }
    ids->push_back(*id);
    begin += spelled.size() - prefix_size;
  }
  return OkStatus();
}

WordLevel::WordLevel(Vocabulary vocabulary, std::optional<TokenId> unknown_id)
    : vocabulary_(std::move(vocabulary)), unknown_id_(unknown_id) {}

Status WordLevel::Encode(std::string_view piece, std::vector<TokenId>* ids) const {
  const auto id = vocabulary_.Find(piece);
  if (!id) return AppendUnknown(unknown_id_, piece, ids);
  ids->push_back(*id);
  return OkStatus();
}

}  // namespace tandem
