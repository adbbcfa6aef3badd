#pragma once

// A SentencePiece model and the parts that a Tokenizer makes of it, whatever file it comes from:
// tokenizer.model, or the keys of a GGUF file. Pure; any thread. Ids and texts equal those of the
// sentencepiece library 0.2.3: control symbols are no text, so they are found in a text only where
// the configuration names them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "frontend/text/normalizers/sentencepiece.h"
#include "frontend/text/tokenizer_file.h"

namespace tandem {

struct SentencePiece {
  // Numbers of sentencepiece_model.proto.
  enum Type : uint64_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  std::string text;
  double score = 0;
  uint64_t type = kNormal;
};

struct SentencePieceModel {
  enum Kind : uint64_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  std::vector<SentencePiece> pieces;  // by id
  uint64_t model_type = kUnigram;
  bool byte_fallback = false;
  bool blank_is_suffix = false;
  std::string unknown_text = " \u2047 ";
  std::string bos = "<s>";
  std::string eos = "</s>";
  SentencePieceRules rules;  // without user_symbols, which are pieces
};

// Unimplemented: another kind of model.
StatusOr<std::unique_ptr<TokenizerFile>> MakeSentencePieceTokenizer(SentencePieceModel model,
                                                                    const TokenizerConfig& config);

}  // namespace tandem
