#include "frontend/text/sentencepiece_file.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "common/strings.h"
#include "frontend/text/bpe.h"
#include "frontend/text/decoders/sentencepiece.h"
#include "frontend/text/normalizers/sentencepiece.h"
#include "frontend/text/protobuf_reader.h"
#include "frontend/text/unigram.h"

namespace tandem {
namespace {

// Numbers of sentencepiece_model.proto.
enum PieceType : uint64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};
enum ModelType : uint64_t { kUnigram = 1, kBpe = 2 };

struct Piece {
  std::string text;
  double score = 0;
  uint64_t type = kNormal;
};

struct ModelFile {
  std::vector<Piece> pieces;
  uint64_t model_type = kUnigram;
  bool byte_fallback = false;
  bool blank_is_suffix = false;
  std::string unknown_text = " \u2047 ";
  std::string bos = "<s>";
  std::string eos = "</s>";
  SentencePieceRules rules;
};

Status Malformed() { return InvalidArgumentError("not a SentencePiece model"); }

StatusOr<Piece> ParsePiece(std::string_view bytes) {
  Piece piece;
  ProtobufReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1) piece.text = reader.bytes();
    if (reader.field() == 2) piece.score = reader.real();
    if (reader.field() == 3) piece.type = reader.number();
  }
  if (!reader.ok() || FindInvalidUtf8(piece.text) != std::string_view::npos) return Malformed();
  return piece;
}

Status ParseTrainerSpec(std::string_view bytes, ModelFile* file) {
  ProtobufReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 3) file->model_type = reader.number();
    if (reader.field() == 24) file->blank_is_suffix = reader.boolean();
    if (reader.field() == 35) file->byte_fallback = reader.boolean();
    if (reader.field() == 44) file->unknown_text = reader.bytes();
    if (reader.field() == 46) file->bos = reader.bytes();
    if (reader.field() == 47) file->eos = reader.bytes();
  }
  const bool is_text = FindInvalidUtf8(file->unknown_text) == std::string_view::npos;
  return reader.ok() && is_text ? OkStatus() : Malformed();
}

Status ParseNormalizerSpec(std::string_view bytes, SentencePieceRules* rules) {
  ProtobufReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 2) {
      ASSIGN_OR_RETURN(rules->map, Charsmap::Create(reader.bytes()));
    }
    if (reader.field() == 3) rules->add_dummy_prefix = reader.boolean();
    if (reader.field() == 4) rules->remove_extra_blanks = reader.boolean();
    if (reader.field() == 5) rules->escape_blanks = reader.boolean();
  }
  return reader.ok() ? OkStatus() : Malformed();
}

StatusOr<ModelFile> ParseModelFile(std::string_view bytes) {
  ModelFile file;
  ProtobufReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1) {
      ASSIGN_OR_RETURN(Piece piece, ParsePiece(reader.bytes()));
      file.pieces.push_back(std::move(piece));
    } else if (reader.field() == 2) {
      RETURN_IF_ERROR(ParseTrainerSpec(reader.bytes(), &file));
    } else if (reader.field() == 3) {
      RETURN_IF_ERROR(ParseNormalizerSpec(reader.bytes(), &file.rules));
    } else if (reader.field() == 5) {
      ProtobufReader denormalizer(reader.bytes());
      while (denormalizer.Next()) {
        if (denormalizer.field() == 2 && !denormalizer.bytes().empty()) {
          return UnimplementedError("denormalizer_spec of tokenizer.model is not supported");
        }
      }
    }
  }
  if (!reader.ok() || file.pieces.empty()) return Malformed();
  std::vector<std::pair<std::string, int32_t>> user_symbols;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const Piece& piece = file.pieces[id];
    if (piece.type == kUserDefined && !piece.text.empty()) {
      user_symbols.emplace_back(piece.text, static_cast<int32_t>(id));
    }
  }
  file.rules.user_symbols = ByteTrie(user_symbols);
  file.rules.blank_is_suffix = file.blank_is_suffix;
  return file;
}

std::optional<TokenId> UnknownId(const ModelFile& file) {
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    if (file.pieces[id].type == kUnknown) return static_cast<TokenId>(id);
  }
  return std::nullopt;
}

StatusOr<std::unique_ptr<TokenModel>> NewUnigram(const ModelFile& file) {
  UnigramOptions options;
  options.unknown_id = UnknownId(file);
  options.byte_fallback = file.byte_fallback;
  options.single_precision = true;
  double highest = std::numeric_limits<float>::min();  // the library starts from it
  for (const Piece& piece : file.pieces) {
    if (piece.type == kNormal) highest = std::max(highest, piece.score);
  }
  std::vector<std::pair<std::string, double>> tokens;
  for (const Piece& piece : file.pieces) {
    // A symbol of the user's always beats the tokens that spell it.
    const double score = piece.type == kUserDefined
                             ? static_cast<double>(piece.text.size()) * highest - 0.1
                             : piece.score;
    tokens.emplace_back(piece.text, score);
    options.usable.push_back(piece.type == kNormal || piece.type == kUserDefined);
  }
  ASSIGN_OR_RETURN(Unigram unigram, Unigram::Create(tokens, std::move(options)));
  return std::unique_ptr<TokenModel>(std::make_unique<Unigram>(std::move(unigram)));
}

// The highest score merges first.
std::unique_ptr<TokenModel> NewBpe(const ModelFile& file) {
  std::vector<double> scores;
  for (const Piece& piece : file.pieces) {
    if (piece.type == kNormal) scores.push_back(piece.score);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<uint32_t> ranks;
  TokenList tokens;
  for (const Piece& piece : file.pieces) {
    const auto rank = std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>());
    ranks.push_back(piece.type == kNormal ? static_cast<uint32_t>(rank - scores.begin())
                                          : Bpe::kNoRank);
    const bool usable = piece.type == kNormal || piece.type == kByte;
    if (usable) tokens.emplace_back(static_cast<TokenId>(ranks.size() - 1), piece.text);
  }
  BpeOptions options;
  options.byte_level = false;
  options.byte_fallback = file.byte_fallback;
  options.fuse_unknown = true;
  options.unknown_id = UnknownId(file);
  return std::make_unique<Bpe>(Bpe::FromRanks(Vocabulary(tokens), ranks, std::move(options)));
}

std::optional<TokenId> FindPiece(const ModelFile& file, std::string_view text) {
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    if (file.pieces[id].text == text) return static_cast<TokenId>(id);
  }
  return std::nullopt;
}

// Control symbols are special; those that the configuration names are found in text.
void AddTokens(const ModelFile& model, const TokenizerConfig& config, TokenizerFile* file) {
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
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type == kControl) file->special_ids.push_back(static_cast<TokenId>(id));
    if (piece.type != kUserDefined || model.model_type != kBpe) continue;
    AddedToken token;  // text that no merge crosses
    token.id = static_cast<TokenId>(id);
    token.content = piece.text;
    file->symbols.push_back(std::move(token));
  }
}

}  // namespace

StatusOr<std::unique_ptr<TokenizerFile>> ParseSentencePieceFile(std::string_view bytes,
                                                                const TokenizerConfig& config) {
  ASSIGN_OR_RETURN(ModelFile model, ParseModelFile(bytes));
  auto file = std::make_unique<TokenizerFile>();
  if (model.model_type == kUnigram) {
    ASSIGN_OR_RETURN(file->model, NewUnigram(model));
  } else if (model.model_type == kBpe) {
    file->model = NewBpe(model);
  } else {
    return UnimplementedError("SentencePiece model type " + std::to_string(model.model_type) +
                              " is not supported, only unigram (1) and bpe (2)");
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
  for (const Piece& piece : model.pieces) {
    vocabulary.emplace_back(static_cast<TokenId>(vocabulary.size()), piece.text);
  }
  RETURN_IF_ERROR(FillVocabularies(vocabulary, file.get()));
  return file;
}

}  // namespace tandem
