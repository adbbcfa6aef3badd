#pragma once

// Variables of the environment that set something here: "TANDEM_" and a name, or vLLM's "VLLM_" and
// the same name. The first has precedence; an empty one, as environment files have them, is not
// set. Thread: any, while none changes the environment.

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr const char* kVariablePrefixes[] = {"TANDEM_", "VLLM_"};

struct OwnVariable {
  std::string name;  // "VLLM_LOG_STATS_INTERVAL"
  std::string value;
};

// name: without a prefix. nullopt: neither is set.
std::optional<OwnVariable> FindOwnVariable(std::string_view name);

}  // namespace tandem
