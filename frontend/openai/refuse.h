#pragma once

// The errors for a field that has the right form and cannot be served. Pure.

#include <string>
#include <utility>

#include "common/status.h"

namespace tandem {

inline Status Refuse(const char* field, std::string message) {
  return InvalidArgumentError(std::move(message)).WithParam(field);
}

// The field is named in the message as well, as by ValueError.
inline Status RefuseByName(const char* field, const std::string& message) {
  return Refuse(field, message + " (parameter=" + field + ")");
}

}  // namespace tandem
