#pragma once

// The error for a field that has the right form and cannot be served. Pure.

#include <string>
#include <utility>

#include "common/status.h"

namespace tandem {

inline Status Refuse(const char* field, std::string message) {
  return InvalidArgumentError(std::move(message)).WithParam(field);
}

}  // namespace tandem
