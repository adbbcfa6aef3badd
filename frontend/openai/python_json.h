#pragma once

// JSON that a model has written, as Python's json.loads() reads it. Pure; any thread.

#include <string_view>

#include "common/status.h"
#include "frontend/openai/json.h"

namespace tandem {

// As ParseJson, with what Python takes beyond it: repeated keys; NaN, Infinity and -Infinity, which
// a number beyond a double is too; and integers beyond 64 bits, which become binary values, their
// digits, because JSON has no kind for them. Templates show such values, DumpJson does not.
StatusOr<JsonDocument> ParsePythonJson(std::string_view text);

}  // namespace tandem
