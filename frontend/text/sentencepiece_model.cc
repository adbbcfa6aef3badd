#include "frontend/text/sentencepiece_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "frontend/text/bpe.h"
#include "frontend/text/decoders/sentencepiece.h"
#include "frontend/text/unigram.h"
#include "frontend/text/word_models.h"

namespace tandem {
namespace {

void AddUserSymbols(SentencePieceModel* model) {
  std::vector<std::pair<std::string, int32_t>> user_symbols;
  for (size_t id = 0; id < model->pieces.size(); ++id) {
    const SentencePiece& piece = model->pieces[id];
    if (piece.type == SentencePiece::kUserDefined && !piece.text.empty()) {
      user_symbols.emplace_back(piece.text, static_cast<int32_t>(id));
    }
  }
  model->rules.user_symbols = ByteTrie(user_symbols);
  model->rules.blank_is_suffix = model->blank_is_suffix;
}

std::optional<TokenId> UnknownId(const SentencePieceModel& model) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type == SentencePiece::kUnknown) return static_cast<TokenId>(id);
  }
  return std::nullopt;
}

StatusOr<std::unique_ptr<TokenModel>> NewUnigram(const SentencePieceModel& model) {
  UnigramOptions options;
  options.unknown_id = UnknownId(model);
  options.byte_fallback = model.byte_fallback;
  options.single_precision = true;
  double highest = std::numeric_limits<float>::min();  // the library starts from it
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type == SentencePiece::kNormal) highest = std::max(highest, piece.score);
  }
  std::vector<std::pair<std::string, double>> tokens;
  for (const SentencePiece& piece : model.pieces) {
    // A symbol of the user's always beats the tokens that spell it.
    const double score = piece.type == SentencePiece::kUserDefined
                             ? static_cast<double>(piece.text.size()) * highest - 0.1
                             : piece.score;
    tokens.emplace_back(piece.text, score);
    options.usable.push_back(piece.type == SentencePiece::kNormal ||
                             piece.type == SentencePiece::kUserDefined);
  }
  ASSIGN_OR_RETURN(Unigram unigram, Unigram::Create(tokens, std::move(options)));
  return std::unique_ptr<TokenModel>(std::make_unique<Unigram>(std::move(unigram)));
}

std::unique_ptr<TokenModel> NewWords(const SentencePieceModel& model) {
  MarkedWordsOptions options;
  options.unknown_id = UnknownId(model).value_or(0);
  TokenList words;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& [text, score, type] = model.pieces[id];
    const auto token_id = static_cast<TokenId>(id);
    if (type == SentencePiece::kNormal || type == SentencePiece::kUserDefined) {
      words.emplace_back(token_id, text);
    } else if (type == SentencePiece::kByte && model.byte_fallback) {
      options.byte_tokens.emplace_back(token_id, text);
    }
  }
  return std::make_unique<MarkedWords>(Vocabulary(words), options);
}

// The highest score merges first. A model of characters has no merges.
std::unique_ptr<TokenModel> NewBpe(const SentencePieceModel& model) {
  std::vector<double> scores;
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type == SentencePiece::kNormal) scores.push_back(piece.score);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<uint32_t> ranks;
  TokenList tokens;
  for (const SentencePiece& piece : model.pieces) {
    const auto rank = std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>());
    const bool merges = model.model_type == SentencePieceModel::kBpe;
    ranks.push_back(merges && piece.type == SentencePiece::kNormal
                        ? static_cast<uint32_t>(rank - scores.begin())
                        : Bpe::kNoRank);
    const bool usable = piece.type == SentencePiece::kNormal || piece.type == SentencePiece::kByte;
    if (usable) tokens.emplace_back(static_cast<TokenId>(ranks.size() - 1), piece.text);
  }
  BpeOptions options;
  options.byte_level = false;
  options.byte_fallback = model.byte_fallback;
  options.fuse_unknown = true;
  options.unknown_id = UnknownId(model);
  return std::make_unique<Bpe>(Bpe::FromRanks(Vocabulary(tokens), ranks, std::move(options)));
}

std::optional<TokenId> FindPiece(const SentencePieceModel& model, std::string_view text) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].text == text) return static_cast<TokenId>(id);
  }
  return std::nullopt;
}

// Control symbols are special; those that the configuration names are found in text.
void AddTokens(const SentencePieceModel& model, const TokenizerConfig& config,
               TokenizerFile* file) {
  file->added_tokens = config.added_tokens;
  for (const auto& [name, text] : config.special_tokens) {
    const auto id = FindPiece(model, text);
    const bool known =
        std::any_of(file->added_tokens.begin(), file->added_tokens.end(),
                    [&text = text](const AddedToken& token) { return token.content == text; });
    if (known || !id) continue;
    AddedToken token;
    token.id = *id;
    token.content = text;
    token.normalized = false;
    token.special = true;
    file->added_tokens.push_back(std::move(token));
  }
  const bool is_cut_at_symbols =
      model.model_type == SentencePieceModel::kBpe || model.model_type == SentencePieceModel::kChar;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.type == SentencePiece::kControl)
      file->special_ids.push_back(static_cast<TokenId>(id));
    if (piece.type != SentencePiece::kUserDefined || !is_cut_at_symbols) continue;
    AddedToken token;  // text that no merge crosses
    token.id = static_cast<TokenId>(id);
    token.content = piece.text;
    file->symbols.push_back(std::move(token));
  }
}

}  // namespace

StatusOr<std::unique_ptr<TokenizerFile>> MakeSentencePieceTokenizer(SentencePieceModel model,
                                                                    const TokenizerConfig& config) {
  AddUserSymbols(&model);
  auto file = std::make_unique<TokenizerFile>();
  if (model.model_type == SentencePieceModel::kUnigram) {
    ASSIGN_OR_RETURN(file->model, NewUnigram(model));
  } else if (model.model_type == SentencePieceModel::kWord) {
    file->model = NewWords(model);
  } else if (model.model_type == SentencePieceModel::kBpe ||
             model.model_type == SentencePieceModel::kChar) {
    file->model = NewBpe(model);
  } else {
    return UnimplementedError(
        "SentencePiece model type " + std::to_string(model.model_type) +
        " is not supported, only unigram (1), bpe (2), word (3) and char (4)");
  }
  SentencePieceDecoding decoding;
  decoding.drops_first_blank = model.rules.add_dummy_prefix || model.rules.remove_extra_blanks;
  decoding.drops_all_blanks = model.rules.remove_extra_blanks;
  decoding.unknown_text = model.unknown_text;
  if (const auto id = UnknownId(model)) decoding.unknown_piece = model.pieces[*id].text;
  file->decoder = TokenDecoder(NewSentencePieceDecoder(std::move(decoding)));
  file->normalizer = Normalizer(NewSentencePieceNormalizer(model.rules));
  if (!config.legacy) {
    SentencePieceRules inner = model.rules;
    inner.add_dummy_prefix = false;
    file->inner_normalizer = Normalizer(NewSentencePieceNormalizer(std::move(inner)));
  }
  if (config.add_bos_token.value_or(true)) {
    if (const auto id = FindPiece(model, model.bos)) file->prefix_ids.push_back(*id);
  }
  if (config.add_eos_token.value_or(false)) {
    if (const auto id = FindPiece(model, model.eos)) file->suffix_ids.push_back(*id);
  }
  AddTokens(model, config, file.get());
  TokenList vocabulary;
  for (const SentencePiece& piece : model.pieces) {
    vocabulary.emplace_back(static_cast<TokenId>(vocabulary.size()), piece.text);
  }
  RETURN_IF_ERROR(FillVocabularies(vocabulary, file.get()));
  return file;
}

}  // namespace tandem
