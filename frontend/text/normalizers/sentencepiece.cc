// SentencePiece's own normalizer: its table of replacements, blanks as a visible mark, one before
// the text, and with remove_extra_whitespaces no others at the ends or in a row.

#include "frontend/text/normalizers/sentencepiece.h"
#include "common/utf8.h"
#include "frontend/text/normalizers/normalizer_step.h"

namespace tandem {
namespace {

class SentencePieceStep : public NormalizerStep {
 public:
  explicit SentencePieceStep(SentencePieceRules rules) : rules_(std::move(rules)) {}

  Status Apply(std::string* text) const override {
    std::string_view rest = *text;
    if (rules_.remove_extra_blanks) {
      while (!rest.empty() && Replacement(rest).replacement == " ") {
        rest.remove_prefix(Replacement(rest).size);
      }
    }
    std::string out;
    if (!rest.empty()) {
      if (rules_.add_dummy_prefix && !rules_.blank_is_suffix) out += blank();
      AppendReplaced(rest, &out);
      if (rules_.remove_extra_blanks) {
        while (out.ends_with(blank())) out.resize(out.size() - blank().size());
      }
      if (rules_.add_dummy_prefix && rules_.blank_is_suffix) out += blank();
    }
    *text = std::move(out);
    return OkStatus();
  }

 private:
  std::string_view blank() const { return rules_.escape_blanks ? "\u2581" : " "; }

  void AppendReplaced(std::string_view rest, std::string* out) const {
    bool after_blank = rules_.remove_extra_blanks;
    while (!rest.empty()) {
      const Charsmap::Match match = Replacement(rest);
      std::string_view text = match.replacement;
      while (after_blank && text.starts_with(' ')) text.remove_prefix(1);
      for (const char c : text) c == ' ' ? out->append(blank()) : out->append(1, c);
      if (!text.empty()) after_blank = rules_.remove_extra_blanks && text.ends_with(' ');
      rest.remove_prefix(match.size);
    }
  }

  // What the start of text becomes; a symbol of the user's or a character stays as it is.
  Charsmap::Match Replacement(std::string_view text) const {
    if (const auto [id, size] = rules_.user_symbols.Longest(text); id >= 0) {
      return {size, text.substr(0, size)};
    }
    if (const auto match = rules_.map.Longest(text)) return *match;
    size_t size = 0;
    NextUtf8(text, &size);
    return {size, text.substr(0, size)};
  }

  const SentencePieceRules rules_;
};

}  // namespace

std::unique_ptr<NormalizerStep> NewSentencePieceNormalizer(SentencePieceRules rules) {
  return std::make_unique<SentencePieceStep>(std::move(rules));
}

}  // namespace tandem
