#include "common/parse_bool.h"

#include <string>

#include "common/strings.h"

namespace tandem {

std::optional<bool> ParseBool(std::string_view text) {
  const std::string lower = ToLower(text);
  if (lower == "true" || lower == "1" || lower == "yes" || lower == "on") return true;
  if (lower == "false" || lower == "0" || lower == "no" || lower == "off") return false;
  return std::nullopt;
}

}  // namespace tandem
