#include "common/own_variable.h"

#include <cstdlib>
#include <utility>

namespace tandem {

std::optional<OwnVariable> FindOwnVariable(std::string_view name) {
  for (const char* prefix : kVariablePrefixes) {
    std::string whole = prefix + std::string(name);
    const char* value = std::getenv(whole.c_str());
    if (value != nullptr && *value != '\0') return OwnVariable{std::move(whole), value};
  }
  return std::nullopt;
}

}  // namespace tandem
