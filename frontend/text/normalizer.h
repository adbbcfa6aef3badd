#pragma once

// The `normalizer` of tokenizer.json: rewrites text before it is split into words.
// Thread: immutable after Create; any thread. Owns its parts.
// Create: Unimplemented names the kind we do not know; InvalidArgument for a malformed one.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"
#include "frontend/text/characters.h"
#include "frontend/text/regex.h"

namespace tandem {

class Normalizer {
 public:
  static StatusOr<Normalizer> Create(const nlohmann::json& spec);  // null: changes nothing

  bool empty() const { return steps_.empty(); }
  // REQUIRES well-formed UTF-8.
  StatusOr<std::string> Apply(std::string_view text) const;

 private:
  struct Replace {
    Regex pattern;
    std::string content;
  };
  struct Prepend {
    std::string content;
  };
  struct Strip {
    bool left, right;
  };
  struct Lowercase {};
  using Step = std::variant<NormalForm, Replace, Prepend, Strip, Lowercase>;

  Status Add(const nlohmann::json& spec, int depth);
  static StatusOr<std::string> ApplyStep(const Step& step, const std::string& text);

  std::vector<Step> steps_;
};

// The `pattern` of a Replace or Split: {"String": "..."} or {"Regex": "..."}.
StatusOr<Regex> CompilePattern(const nlohmann::json& spec);

}  // namespace tandem
