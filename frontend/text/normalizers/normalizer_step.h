#pragma once

// One kind of normalizer. Thread: immutable, any thread.

#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"

namespace tandem {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Rewrites *text, which is well-formed UTF-8 before and after. Linear in the text.
  virtual Status Apply(std::string* text) const = 0;
};

using NewNormalizerStep = StatusOr<std::unique_ptr<NormalizerStep>>;

// Each kind's function reads the fields of its kind.
NewNormalizerStep NewBertNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewByteLevelNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewLowercaseNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewNfcNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewNfdNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewNfkcNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewNfkdNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewNmtNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewPrecompiledNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewPrependNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewReplaceNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewStripNormalizer(const nlohmann::json& spec);
NewNormalizerStep NewStripAccentsNormalizer(const nlohmann::json& spec);

}  // namespace tandem
