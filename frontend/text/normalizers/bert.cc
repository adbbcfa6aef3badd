// BertNormalizer: BERT's basic cleaning, each part of it optional.

#include "common/utf8.h"
#include "frontend/text/characters.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/normalizers/normalizer_step.h"

namespace tandem {
namespace {

// The blocks of Chinese characters, without those of Japanese and Korean alphabets. U+2B820 to
// U+2B91F, which belong to one of them, are missing in the reference too.
bool IsChinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

struct BertOptions {
  bool clean_text = true;            // no control characters, one kind of blank
  bool handle_chinese_chars = true;  // blanks around each
  bool strip_accents = true;
  bool lowercase = true;
};

class BertNormalizer : public NormalizerStep {
 public:
  explicit BertNormalizer(const BertOptions& options) : options_(options) {}

  Status Apply(std::string* text) const override {
    if (options_.clean_text || options_.handle_chinese_chars) *text = Clean(*text);
    if (options_.strip_accents) {
      std::string out;
      const std::string decomposed = Normalize(*text, NormalForm::kNfd);
      for (size_t pos = 0; pos < decomposed.size();) {
        const char32_t c = NextUtf8(decomposed, &pos);
        if (!IsNonspacingMark(c)) AppendUtf8(c, &out);
      }
      *text = std::move(out);
    }
    if (options_.lowercase) *text = Lowercase(*text);
    return OkStatus();
  }

 private:
  std::string Clean(std::string_view text) const {
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const char32_t c = NextUtf8(text, &pos);
      const bool line = c == '\t' || c == '\n' || c == '\r';
      if (options_.clean_text && !line && (c == 0 || c == kReplacementChar || IsControl(c))) {
        continue;
      }
      if (options_.clean_text && IsWhiteSpace(c)) {
        out += ' ';
      } else if (options_.handle_chinese_chars && IsChinese(c)) {
        out += ' ';
        AppendUtf8(c, &out);
        out += ' ';
      } else {
        AppendUtf8(c, &out);
      }
    }
    return out;
  }

  const BertOptions options_;
};

}  // namespace

NewNormalizerStep NewBertNormalizer(const nlohmann::json& spec) {
  BertOptions options;
  ASSIGN_OR_RETURN(options.clean_text, BoolField(spec, "clean_text", true));
  ASSIGN_OR_RETURN(options.handle_chinese_chars, BoolField(spec, "handle_chinese_chars", true));
  ASSIGN_OR_RETURN(options.lowercase, BoolField(spec, "lowercase", true));
  ASSIGN_OR_RETURN(options.strip_accents, BoolField(spec, "strip_accents", options.lowercase));
  return std::unique_ptr<NormalizerStep>(std::make_unique<BertNormalizer>(options));
}

}  // namespace tandem
