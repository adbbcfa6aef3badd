// Replace: a string, or what a regular expression matches, by another string.

#include "frontend/text/json_fields.h"
#include "frontend/text/normalizers/normalizer_step.h"
#include "frontend/text/regex.h"
#include "frontend/text/replace_all.h"

namespace tandem {
namespace {

class ReplaceStringNormalizer : public NormalizerStep {
 public:
  ReplaceStringNormalizer(std::string from, std::string to)
      : from_(std::move(from)), to_(std::move(to)) {}
  Status Apply(std::string* text) const override {
    *text = ReplaceAll(*text, from_, to_);
    return OkStatus();
  }

 private:
  const std::string from_;
  const std::string to_;
};

class ReplaceRegexNormalizer : public NormalizerStep {
 public:
  ReplaceRegexNormalizer(Regex pattern, std::string to)
      : pattern_(std::move(pattern)), to_(std::move(to)) {}
  Status Apply(std::string* text) const override {
    ASSIGN_OR_RETURN(*text, ReplaceMatches(*text, pattern_, to_));
    return OkStatus();
  }

 private:
  const Regex pattern_;
  const std::string to_;
};

}  // namespace

NewNormalizerStep NewReplaceNormalizer(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(std::string to, StringField(spec, "content", ""));
  const nlohmann::json& pattern = Field(spec, "pattern");
  // An empty string matches everywhere, which is what its regular expression does.
  if (const auto& from = Field(pattern, "String"); from.is_string() && from != "") {
    return std::unique_ptr<NormalizerStep>(
        std::make_unique<ReplaceStringNormalizer>(from.get<std::string>(), std::move(to)));
  }
  ASSIGN_OR_RETURN(Regex regex, CompilePattern(pattern));
  return std::unique_ptr<NormalizerStep>(
      std::make_unique<ReplaceRegexNormalizer>(std::move(regex), std::move(to)));
}

}  // namespace tandem
