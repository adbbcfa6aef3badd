#include "frontend/text/normalizer.h"

#include <map>
#include <utility>

#include "frontend/text/json_fields.h"
#include "frontend/text/normalizers/normalizer_step.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 8;

using NewStep = NewNormalizerStep (*)(const nlohmann::json& spec);

const std::map<std::string, NewStep>& Kinds() {
  static const std::map<std::string, NewStep> kinds = {
      {"BertNormalizer", NewBertNormalizer},
      {"ByteLevel", NewByteLevelNormalizer},
      {"Lowercase", NewLowercaseNormalizer},
      {"NFC", NewNfcNormalizer},
      {"NFD", NewNfdNormalizer},
      {"NFKC", NewNfkcNormalizer},
      {"NFKD", NewNfkdNormalizer},
      {"Nmt", NewNmtNormalizer},
      {"Precompiled", NewPrecompiledNormalizer},
      {"Prepend", NewPrependNormalizer},
      {"Replace", NewReplaceNormalizer},
      {"Strip", NewStripNormalizer},
      {"StripAccents", NewStripAccentsNormalizer},
  };
  return kinds;
}

}  // namespace

Normalizer::Normalizer() = default;
Normalizer::Normalizer(std::unique_ptr<NormalizerStep> only_step) {
  steps_.push_back(std::move(only_step));
}
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

StatusOr<Normalizer> Normalizer::Create(const nlohmann::json& spec) {
  Normalizer normalizer;
  if (!spec.is_null()) RETURN_IF_ERROR(normalizer.Add(spec, 0));
  return normalizer;
}

Status Normalizer::Add(const nlohmann::json& spec, int depth) {
  if (depth > kMaxDepth) return InvalidArgumentError("normalizer is nested too deeply");
  ASSIGN_OR_RETURN(const std::string kind, KindOf(spec, "normalizer"));
  if (kind == "Sequence") {
    for (const auto& item : Field(spec, "normalizers")) RETURN_IF_ERROR(Add(item, depth + 1));
    return OkStatus();
  }
  const auto row = Kinds().find(kind);
  if (row == Kinds().end()) {
    return UnimplementedError("normalizer \"" + kind + "\" is not supported");
  }
  ASSIGN_OR_RETURN(auto step, row->second(spec));
  steps_.push_back(std::move(step));
  return OkStatus();
}

StatusOr<std::string> Normalizer::Apply(std::string_view text) const {
  std::string current(text);
  for (const auto& step : steps_) RETURN_IF_ERROR(step->Apply(&current));
  return current;
}

}  // namespace tandem
