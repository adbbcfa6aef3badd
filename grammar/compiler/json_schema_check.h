#pragma once

// Refuses JSON schemas with keywords that xgrammar leaves out without a word: always, or beside
// others; and patterns that make no JSON. Pure; any thread.
// Keywords of no effect on what is valid (title, format of an unknown kind …) are left alone, and
// so are those beside `$ref`, which have none before draft 2019-09.

#include <string>

#include "common/status.h"

namespace tandem {

// INVALID_ARGUMENT: the text is not JSON, or has such a keyword or pattern: the first and where it
// stands.
Status CheckJsonSchema(const std::string& schema_text);

}  // namespace tandem
