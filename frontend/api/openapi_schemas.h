#pragma once

// The schemas that /openapi.json refers to: request bodies from the field tables, responses as far
// as they are promised. Pure; any thread.

#include <string_view>

#include "frontend/openai/json.h"

namespace tandem {

// What a route returns with 200, by the name in its row.
struct ResponseSchema {
  std::string_view name;
  std::string_view media_type;  // empty: no body
  std::string_view schema;      // JSON text
  bool may_stream = false;      // server-sent events too, when requested
};
// REQUIRES: the name has a row.
const ResponseSchema& FindResponseSchema(std::string_view name);

// All schemas by name: components/schemas.
Json ComponentSchemas();

}  // namespace tandem
