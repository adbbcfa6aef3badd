#pragma once

// Specs in forms that xgrammar does not read itself, in forms that it does. Pure; any thread.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/status.h"
#include "grammar/protocol.h"

namespace tandem {

// Whether a grammar is Lark's rather than EBNF: no line has a "::=" outside of comments.
bool LooksLikeLark(std::string_view grammar);

// Makes vLLM's older form of structural tags, {structures: [{begin, schema, end}], triggers},
// today's. Unless blanks is kAny, at most one blank at a time stands between the tokens of its
// JSON; the library can allow no fewer. Whether the tag changed. INVALID_ARGUMENT: it is neither
// form.
StatusOr<bool> UpdateStructuralTag(JsonBlanks blanks, nlohmann::ordered_json* tag);

// xgrammar 0.2.8 takes [\^a] for [^a]: the same set of characters as (\^|[a]).
std::string WithoutLeadingCarets(std::string_view regex);

// Whether a JSON schema changed. Each `pattern` and each name of `patternProperties` is rewritten
// as above and in printable ASCII (grammar/schema/json_pattern.h), where it is not an instance's.
// Lists of `items` get the name of draft 2020-12, `prefixItems`. Lengths beside a `format`, which
// the library reads in place of it, go: one character is the least of what most formats describe,
// and more than some thousand are no limit in practice. A `format` beside a `pattern`, which it
// would leave out, goes, unless it cannot read the pattern. References are spelled as the library
// finds their targets (grammar/schema/json_references.h).
bool RewriteSchema(nlohmann::ordered_json* schema);
// The same for a structural tag of today's form, and patterns of its own.
bool RewriteSchemasOfTag(nlohmann::ordered_json* tag);

// What a library's message says, without times, source files and the conditions it checked; the
// lines of its log, each once.
std::string PlainMessage(std::string_view message);

}  // namespace tandem
