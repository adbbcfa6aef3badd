#pragma once

// The `normalizer` of tokenizer.json: rewrites text before it is split into words.
// Thread: immutable after Create; any thread. Owns its steps.
// Create: Unimplemented names a kind that is not supported; InvalidArgument for a malformed one.
// Apply fails only when a text makes a regular expression run too long (ResourceExhausted).
// To add a kind: a file in normalizers/ and a row in normalizer.cc.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"

namespace tandem {

class NormalizerStep;

class Normalizer {
 public:
  static StatusOr<Normalizer> Create(const nlohmann::json& spec);  // null: changes nothing
  Normalizer();
  explicit Normalizer(std::unique_ptr<NormalizerStep> only_step);
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;
  ~Normalizer();

  bool empty() const { return steps_.empty(); }
  // REQUIRES well-formed UTF-8.
  StatusOr<std::string> Apply(std::string_view text) const;

 private:
  Status Add(const nlohmann::json& spec, int depth);

  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace tandem
