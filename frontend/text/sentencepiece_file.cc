#include "frontend/text/sentencepiece_model.h"

#include <utility>

#include "common/strings.h"
#include "frontend/text/protobuf_reader.h"
#include "frontend/text/sentencepiece_model.h"

namespace tandem {
namespace {

Status Malformed() { return InvalidArgumentError("not a SentencePiece model"); }

StatusOr<SentencePiece> ParsePiece(std::string_view bytes) {
  SentencePiece piece;
  ProtobufReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1) piece.text = reader.bytes();
    if (reader.field() == 2) piece.score = reader.real();
    if (reader.field() == 3) piece.type = reader.number();
  }
  if (!reader.ok() || FindInvalidUtf8(piece.text) != std::string_view::npos) return Malformed();
  return piece;
}

Status ParseTrainerSpec(std::string_view bytes, SentencePieceModel* model) {
  ProtobufReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 3) model->model_type = reader.number();
    if (reader.field() == 24) model->blank_is_suffix = reader.boolean();
    if (reader.field() == 35) model->byte_fallback = reader.boolean();
    if (reader.field() == 44) model->unknown_text = reader.bytes();
    if (reader.field() == 46) model->bos = reader.bytes();
    if (reader.field() == 47) model->eos = reader.bytes();
  }
  const bool is_text = FindInvalidUtf8(model->unknown_text) == std::string_view::npos;
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

StatusOr<SentencePieceModel> ParseModel(std::string_view bytes) {
  SentencePieceModel model;
  ProtobufReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1) {
      ASSIGN_OR_RETURN(SentencePiece piece, ParsePiece(reader.bytes()));
      model.pieces.push_back(std::move(piece));
    } else if (reader.field() == 2) {
      RETURN_IF_ERROR(ParseTrainerSpec(reader.bytes(), &model));
    } else if (reader.field() == 3) {
      RETURN_IF_ERROR(ParseNormalizerSpec(reader.bytes(), &model.rules));
    } else if (reader.field() == 5) {
      ProtobufReader denormalizer(reader.bytes());
      while (denormalizer.Next()) {
        if (denormalizer.field() == 2 && !denormalizer.bytes().empty()) {
          return UnimplementedError("denormalizer_spec of tokenizer.model is not supported");
        }
      }
    }
  }
  if (!reader.ok() || model.pieces.empty()) return Malformed();
  return model;
}

}  // namespace

StatusOr<std::unique_ptr<TokenizerFile>> ParseSentencePieceFile(std::string_view bytes,
                                                                const TokenizerConfig& config) {
  ASSIGN_OR_RETURN(SentencePieceModel model, ParseModel(bytes));
  return MakeSentencePieceTokenizer(std::move(model), config);
}

}  // namespace tandem
