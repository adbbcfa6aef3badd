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

MarkedWords::MarkedWords(Vocabulary vocabulary, const MarkedWordsOptions& options)
    : vocabulary_(std::move(vocabulary)), unknown_id_(options.unknown_id) {
  const Vocabulary bytes(options.byte_tokens);
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const auto id = bytes.Find(ByteTokenText(static_cast<unsigned char>(byte)));
    has_bytes_ = has_bytes_ && id.has_value();
    byte_ids_[byte] = id.value_or(unknown_id_);
  }
}

Status MarkedWords::Encode(std::string_view piece, std::vector<TokenId>* ids) const {
  constexpr std::string_view kMark = "\u2581";
  bool after_unknown = false;
  while (!piece.empty()) {
    const std::string_view word = piece.substr(0, piece.find(kMark, 1));
    piece.remove_prefix(word.size());
    const auto id = vocabulary_.Find(word);
    if (id) {
      ids->push_back(*id);
    } else if (has_bytes_) {
      for (const char byte : word) ids->push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    } else if (!after_unknown) {
      ids->push_back(unknown_id_);
    }
    after_unknown = !id;
  }
  return OkStatus();
}

}  // namespace tandem
