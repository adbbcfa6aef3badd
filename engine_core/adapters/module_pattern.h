#pragma once

// A key of rank_pattern or alpha_pattern, which PEFT reads as a regular expression: a module's path
// matches where "(.*\.)?(KEY)$" does from its begin on. Keys that are names, as nearly all are, are
// compared; the others run in PCRE2, which knows what Python's re does and counts its steps.
// Thread: any; immutable. Failure: INVALID_ARGUMENT for a key that is no expression,
// RESOURCE_EXHAUSTED where one takes too many steps for a path.

#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

class ModulePattern {
 public:
  static StatusOr<ModulePattern> Parse(const std::string& key);

  bool is_expression() const { return expression_ != nullptr; }
  StatusOr<bool> Matches(std::string_view module) const;

 private:
  struct CompiledKey;

  bool MatchesName(std::string_view module) const;

  std::string name_;  // a line feed stands for any character
  bool is_whole_path_ = false;
  std::shared_ptr<const CompiledKey> expression_;  // null: name_ is compared
};

}  // namespace tandem
