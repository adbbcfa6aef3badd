// The parts of ByteLevel that change text: a blank before each piece, and GPT-2's alphabet, which
// later kinds see and a model of bytes does not.

#include "frontend/text/byte_level.h"

#include <utility>

#include "frontend/text/pretokenizers/pretokenizer_step.h"

namespace tandem {
namespace {

class PrefixSpaceStep : public PretokenizerStep {
 public:
  Status Apply(Pieces* pieces) const override {
    for (std::string_view& piece : pieces->pieces) {
      if (!piece.starts_with(' ')) piece = pieces->owned.emplace_back(" " + std::string(piece));
    }
    return OkStatus();
  }
};

class ToAlphabetStep : public PretokenizerStep {
 public:
  Status Apply(Pieces* pieces) const override {
    for (std::string_view& piece : pieces->pieces) {
      piece = pieces->owned.emplace_back(BytesToAlphabet(piece));
    }
    return OkStatus();
  }
};

class FromAlphabetStep : public PretokenizerStep {
 public:
  Status Apply(Pieces* pieces) const override {
    for (std::string_view& piece : pieces->pieces) {
      auto bytes = AlphabetToBytes(piece);
      if (bytes.has_value()) piece = pieces->owned.emplace_back(*std::move(bytes));
    }
    return OkStatus();
  }
};

}  // namespace

NewPretokenizerStep NewPrefixSpacePretokenizer() {
  return std::unique_ptr<PretokenizerStep>(std::make_unique<PrefixSpaceStep>());
}
NewPretokenizerStep NewToAlphabetPretokenizer() {
  return std::unique_ptr<PretokenizerStep>(std::make_unique<ToAlphabetStep>());
}
NewPretokenizerStep NewFromAlphabetPretokenizer() {
  return std::unique_ptr<PretokenizerStep>(std::make_unique<FromAlphabetStep>());
}

}  // namespace tandem
