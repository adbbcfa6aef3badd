// Prepend: a string before any text that is not empty.

#include "frontend/text/json_fields.h"
#include "frontend/text/normalizers/normalizer_step.h"

namespace tandem {
namespace {

class PrependNormalizer : public NormalizerStep {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  Status Apply(std::string* text) const override {
    if (!text->empty()) text->insert(0, prefix_);
    return OkStatus();
  }

 private:
  const std::string prefix_;
};

}  // namespace

NewNormalizerStep NewPrependNormalizer(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(std::string prefix, StringField(spec, "prepend", ""));
  return std::unique_ptr<NormalizerStep>(std::make_unique<PrependNormalizer>(std::move(prefix)));
}

}  // namespace tandem
