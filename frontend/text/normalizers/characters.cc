// The kinds that rewrite one character at a time: Lowercase, StripAccents, Nmt and ByteLevel.

#include "frontend/text/characters.h"

#include "common/utf8.h"
#include "frontend/text/byte_level.h"
#include "frontend/text/normalizers/normalizer_step.h"

namespace tandem {
namespace {

class LowercaseNormalizer : public NormalizerStep {
 public:
  Status Apply(std::string* text) const override {
    *text = Lowercase(*text);
    return OkStatus();
  }
};

class StripAccentsNormalizer : public NormalizerStep {
 public:
  Status Apply(std::string* text) const override {
    std::string out;
    for (size_t pos = 0; pos < text->size();) {
      const char32_t c = NextUtf8(*text, &pos);
      if (!IsMark(c)) AppendUtf8(c, &out);
    }
    *text = std::move(out);
    return OkStatus();
  }
};

// SentencePiece's rules for translation: no control characters, one kind of blank.
class NmtNormalizer : public NormalizerStep {
 public:
  Status Apply(std::string* text) const override {
    std::string out;
    for (size_t pos = 0; pos < text->size();) {
      const char32_t c = NextUtf8(*text, &pos);
      if (IsBlank(c)) {
        out += ' ';
      } else if (!IsDropped(c)) {
        AppendUtf8(c, &out);
      }
    }
    *text = std::move(out);
    return OkStatus();
  }

 private:
  static bool IsDropped(char32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
           c == 0x8F || c == 0x9F;
  }
  static bool IsBlank(char32_t c) {
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  }
};

// Every byte becomes its character in GPT-2's alphabet.
class ByteLevelNormalizer : public NormalizerStep {
 public:
  Status Apply(std::string* text) const override {
    *text = BytesToAlphabet(*text);
    return OkStatus();
  }
};

template <class Step>
NewNormalizerStep New() {
  return std::unique_ptr<NormalizerStep>(std::make_unique<Step>());
}

}  // namespace

NewNormalizerStep NewLowercaseNormalizer(const nlohmann::json&) {
  return New<LowercaseNormalizer>();
}
NewNormalizerStep NewStripAccentsNormalizer(const nlohmann::json&) {
  return New<StripAccentsNormalizer>();
}
NewNormalizerStep NewNmtNormalizer(const nlohmann::json&) { return New<NmtNormalizer>(); }
NewNormalizerStep NewByteLevelNormalizer(const nlohmann::json&) {
  return New<ByteLevelNormalizer>();
}

}  // namespace tandem
