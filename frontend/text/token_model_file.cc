#include "frontend/text/token_model_file.h"

#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/log.h"
#include "frontend/text/bpe.h"
#include "frontend/text/byte_level.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/unigram.h"
#include "frontend/text/word_models.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int64_t kMaxVocabSize = 1 << 24;

StatusOr<TokenList> ParseVocab(const json& spec) {
  if (!spec.is_object()) return WrongType("vocab", spec, "an object");
  TokenList tokens;
  tokens.reserve(spec.size());
  for (const auto& [text, value] : spec.items()) {
    ASSIGN_OR_RETURN(const TokenId id, ToTokenId(value, text));
    tokens.emplace_back(id, text);
  }
  return tokens;
}

// A merge is "left right" or ["left", "right"].
StatusOr<Bpe::Merge> ParseMerge(const json& item) {
  if (item.is_string()) {
    const std::string text = item.get<std::string>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return Bpe::Merge(text.substr(0, space), text.substr(space + 1));
    }
  } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
    return Bpe::Merge(item[0].get<std::string>(), item[1].get<std::string>());
  }
  return InvalidArgumentError("merge " + item.dump(-1, ' ', false, json::error_handler_t::replace) +
                              " must be two tokens");
}

StatusOr<std::vector<Bpe::Merge>> ParseMerges(const json& spec, bool byte_level) {
  if (!spec.is_array()) return WrongType("merges", spec, "an array");
  std::vector<Bpe::Merge> merges;
  merges.reserve(spec.size());
  for (const json& item : spec) {
    ASSIGN_OR_RETURN(Bpe::Merge merge, ParseMerge(item));
    if (byte_level) {
      auto left = AlphabetToBytes(merge.first);
      auto right = AlphabetToBytes(merge.second);
      if (!left || !right) continue;  // no text has its characters
      merge = {std::move(*left), std::move(*right)};
    }
    merges.push_back(std::move(merge));
  }
  return merges;
}

std::optional<TokenId> FindToken(const TokenList& vocabulary, std::string_view token) {
  for (const auto& [id, text] : vocabulary) {
    if (text == token) return id;
  }
  return std::nullopt;
}

// A share of the merges that training skips at random, so that a model sees words cut in more ways
// than one. A prompt is cut the one best way, as with 0; only with 1 there is nothing random.
StatusOr<bool> DropsAllMerges(const json& dropout) {
  if (dropout.is_null()) return false;
  if (!dropout.is_number() || dropout < 0.0 || dropout > 1.0) {
    return WrongType("dropout", dropout, "a number from 0 to 1");
  }
  if (dropout > 0.0 && dropout < 1.0) {
    LOG_WARNING << "the tokenizer's BPE dropout of " << dropout.dump()
                << " is for training; texts are encoded without it";
  }
  return dropout == 1.0;
}

StatusOr<std::unique_ptr<TokenModel>> ParseBpe(const json& spec, bool byte_level,
                                               TokenList* vocabulary) {
  ASSIGN_OR_RETURN(*vocabulary, ParseVocab(Field(spec, "vocab")));
  BpeOptions options;
  options.byte_level = byte_level;
  ASSIGN_OR_RETURN(options.ignore_merges, BoolField(spec, "ignore_merges", false));
  ASSIGN_OR_RETURN(options.byte_fallback, BoolField(spec, "byte_fallback", false));
  ASSIGN_OR_RETURN(options.fuse_unknown, BoolField(spec, "fuse_unk", false));
  ASSIGN_OR_RETURN(options.continuing_prefix, StringField(spec, "continuing_subword_prefix", ""));
  ASSIGN_OR_RETURN(options.end_suffix, StringField(spec, "end_of_word_suffix", ""));
  ASSIGN_OR_RETURN(const bool drops_all, DropsAllMerges(Field(spec, "dropout")));
  ASSIGN_OR_RETURN(const std::string unknown, StringField(spec, "unk_token", ""));
  if (!unknown.empty()) options.unknown_id = FindToken(*vocabulary, unknown);

  TokenList symbols;
  symbols.reserve(vocabulary->size());
  for (const auto& [id, text] : *vocabulary) {
    if (!byte_level) {
      symbols.emplace_back(id, text);
    } else if (auto bytes = AlphabetToBytes(text); bytes.has_value()) {
      symbols.emplace_back(id, std::move(*bytes));
    }
  }
  ASSIGN_OR_RETURN(std::vector<Bpe::Merge> merges, ParseMerges(Field(spec, "merges"), byte_level));
  if (drops_all) {
    merges.clear();
    options.ignore_merges = false;
  }
  ASSIGN_OR_RETURN(Bpe bpe, Bpe::Create(Vocabulary(symbols), merges, options));
  return std::unique_ptr<TokenModel>(std::make_unique<Bpe>(std::move(bpe)));
}

// The vocabulary is a list of [token, score].
StatusOr<std::unique_ptr<TokenModel>> ParseUnigram(const json& spec, bool, TokenList* vocabulary) {
  const json& entries = Field(spec, "vocab");
  if (!entries.is_array()) return WrongType("vocab", entries, "an array");
  std::vector<std::pair<std::string, double>> tokens;
  tokens.reserve(entries.size());
  for (const json& entry : entries) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return InvalidArgumentError("token " + std::to_string(tokens.size()) +
                                  " of the vocabulary must be [token, score]");
    }
    tokens.emplace_back(entry[0].get<std::string>(), entry[1].get<double>());
    vocabulary->emplace_back(static_cast<TokenId>(vocabulary->size()), tokens.back().first);
  }
  UnigramOptions options;
  ASSIGN_OR_RETURN(options.byte_fallback, BoolField(spec, "byte_fallback", false));
  if (const json& unknown = Field(spec, "unk_id"); !unknown.is_null()) {
    ASSIGN_OR_RETURN(options.unknown_id, ToTokenId(unknown, "unk_id"));
  }
  ASSIGN_OR_RETURN(Unigram unigram, Unigram::Create(tokens, options));
  return std::unique_ptr<TokenModel>(std::make_unique<Unigram>(std::move(unigram)));
}

StatusOr<std::unique_ptr<TokenModel>> ParseWordPiece(const json& spec, bool,
                                                     TokenList* vocabulary) {
  ASSIGN_OR_RETURN(*vocabulary, ParseVocab(Field(spec, "vocab")));
  ASSIGN_OR_RETURN(const std::string unknown, StringField(spec, "unk_token", "[UNK]"));
  WordPieceModelOptions options;
  options.unknown_id = FindToken(*vocabulary, unknown);
  ASSIGN_OR_RETURN(options.continuing_prefix, StringField(spec, "continuing_subword_prefix", "##"));
  if (const json& limit = Field(spec, "max_input_chars_per_word"); !limit.is_null()) {
    if (!limit.is_number_unsigned()) return WrongType("max_input_chars_per_word", limit, "a count");
    options.max_chars_per_word = limit.get<size_t>();
  }
  return std::unique_ptr<TokenModel>(
      std::make_unique<WordPiece>(Vocabulary(*vocabulary), std::move(options)));
}

StatusOr<std::unique_ptr<TokenModel>> ParseWordLevel(const json& spec, bool,
                                                     TokenList* vocabulary) {
  ASSIGN_OR_RETURN(*vocabulary, ParseVocab(Field(spec, "vocab")));
  ASSIGN_OR_RETURN(const std::string unknown, StringField(spec, "unk_token", "<unk>"));
  return std::unique_ptr<TokenModel>(
      std::make_unique<WordLevel>(Vocabulary(*vocabulary), FindToken(*vocabulary, unknown)));
}

// Old files name no type.
StatusOr<std::string> ModelKind(const json& spec) {
  const char* kind = Field(spec, "vocab").is_array()                                 ? "Unigram"
                     : spec.is_object() && spec.contains("merges")                   ? "BPE"
                     : spec.is_object() && spec.contains("max_input_chars_per_word") ? "WordPiece"
                                                                                     : "WordLevel";
  return StringField(spec, "type", kind);
}

using ParseKind = StatusOr<std::unique_ptr<TokenModel>> (*)(const json& spec, bool byte_level,
                                                            TokenList* vocabulary);

}  // namespace

StatusOr<TokenId> ToTokenId(const json& value, std::string_view name) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
      value.get<int64_t>() >= kMaxVocabSize) {
    return InvalidArgumentError("id of \"" + std::string(name) + "\" is " + value.dump() +
                                ", must be an integer below " + std::to_string(kMaxVocabSize));
  }
  return static_cast<TokenId>(value.get<int64_t>());
}

StatusOr<bool> ModelTakesBytes(const json& spec) {
  ASSIGN_OR_RETURN(const std::string kind, ModelKind(spec));
  if (kind != "BPE") return false;
  // Affixes spell characters, so such a model takes those of the alphabet.
  ASSIGN_OR_RETURN(const std::string prefix, StringField(spec, "continuing_subword_prefix", ""));
  ASSIGN_OR_RETURN(const std::string suffix, StringField(spec, "end_of_word_suffix", ""));
  return prefix.empty() && suffix.empty();
}

StatusOr<std::unique_ptr<TokenModel>> ParseTokenModel(const json& spec, bool byte_level,
                                                      TokenList* vocabulary) {
  static const std::map<std::string, ParseKind> kKinds = {{"BPE", ParseBpe},
                                                          {"Unigram", ParseUnigram},
                                                          {"WordLevel", ParseWordLevel},
                                                          {"WordPiece", ParseWordPiece}};
  ASSIGN_OR_RETURN(const std::string kind, ModelKind(spec));
  const auto row = kKinds.find(kind);
  if (row == kKinds.end()) {
    return UnimplementedError("model \"" + kind + "\" is not supported");
  }
  return row->second(spec, byte_level, vocabulary);
}

}  // namespace tandem
