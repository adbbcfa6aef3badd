#pragma once

// Refuses JSON schemas with keywords that xgrammar leaves out without a word: always, or beside
// others; and patterns that make no JSON. One rule for every schema that an output is held to: the
// frontend asks before it sends one, the program that compiles asks again.
// Pure; any thread; depth of recursion: the schema's.
// Keywords of no effect on what is valid (title, format of an unknown kind …) are left alone, and
// so are those beside `$ref` in drafts before 2019-09, where `$schema` names one.

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"

namespace tandem {

// INVALID_ARGUMENT: it is what parsing discards, or has such a keyword or pattern: the first and
// where it stands.
Status CheckJsonSchema(const nlohmann::ordered_json& schema);

// The same for each schema of a structural tag, in its older form or in today's.
Status CheckSchemasOfTag(const nlohmann::ordered_json& tag);

}  // namespace tandem
