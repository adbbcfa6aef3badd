// NFC, NFD, NFKC, NFKD: Unicode's normal forms.

#include "frontend/text/characters.h"
#include "frontend/text/normalizers/normalizer_step.h"

namespace tandem {
namespace {

class UnicodeFormNormalizer : public NormalizerStep {
 public:
  explicit UnicodeFormNormalizer(NormalForm form) : form_(form) {}
  Status Apply(std::string* text) const override {
    *text = Normalize(*text, form_);
    return OkStatus();
  }

 private:
  const NormalForm form_;
};

NewNormalizerStep NewForm(NormalForm form) {
  return std::unique_ptr<NormalizerStep>(std::make_unique<UnicodeFormNormalizer>(form));
}

}  // namespace

NewNormalizerStep NewNfcNormalizer(const nlohmann::json&) { return NewForm(NormalForm::kNfc); }
NewNormalizerStep NewNfdNormalizer(const nlohmann::json&) { return NewForm(NormalForm::kNfd); }
NewNormalizerStep NewNfkcNormalizer(const nlohmann::json&) { return NewForm(NormalForm::kNfkc); }
NewNormalizerStep NewNfkdNormalizer(const nlohmann::json&) { return NewForm(NormalForm::kNfkd); }

}  // namespace tandem
