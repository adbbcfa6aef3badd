#pragma once

// Optional values in responses, which show null where there is none. Pure; any thread.

#include <nlohmann/json.hpp>
#include <optional>

#include "frontend/openai/json.h"

namespace tandem {

inline Json OrNull(const JsonDocument& value) { return value.is_null() ? Json(nullptr) : *value; }

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace tandem
