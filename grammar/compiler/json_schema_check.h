#pragma once

// Refuses JSON schemas with keywords that xgrammar leaves out without a word. Pure; any thread.
// Keywords of no effect on what is valid (title, format of an unknown kind …) are left alone.

#include <string>

#include "common/status.h"

namespace tandem {

// INVALID_ARGUMENT: the text is not JSON, or names the first such keyword and where it stands.
Status CheckJsonSchema(const std::string& schema_text);

}  // namespace tandem
