#pragma once

// Specs in forms that xgrammar does not read itself, in forms that it does. Pure; any thread.

#include <string>
#include <string_view>

#include "common/status.h"
#include "grammar/protocol.h"

namespace tandem {

// Whether a grammar is Lark's rather than EBNF: no line has a "::=" outside of comments.
bool LooksLikeLark(std::string_view grammar);

// vLLM's older form of structural tags, {structures: [{begin, schema, end}], triggers}, as today's;
// today's form is returned as it is. Unless blanks is kAny, at most one blank at a time stands
// between the tokens of its JSON; the library can allow no fewer. INVALID_ARGUMENT: it is neither
// form.
StatusOr<std::string> CurrentStructuralTag(const std::string& tag_json,
                                           JsonBlanks blanks = JsonBlanks::kAny);

// xgrammar 0.2.8 takes [\^a] for [^a]: the same set of characters as (\^|[a]).
std::string WithoutLeadingCarets(std::string_view regex);
// The same for each `pattern` of a JSON schema or a structural tag and each name of its
// `patternProperties`, where it is not an instance's; and all in printable ASCII
// (grammar/schema/json_pattern.h). What is not JSON, and what needs no change, is returned as it
// is.
std::string WithReadablePatterns(const std::string& json);
// The same for lists of `items`, which draft 2020-12 calls `prefixItems`; and for lengths beside a
// `format` that a library reads in place of them: one character is the least of what most formats
// describe, and more than some thousand are no limit in practice.
std::string WithTodaysKeywords(const std::string& json);

// References of a JSON schema, or of each one of a structural tag, as the library finds their
// targets (grammar/schema/json_references.h). What needs no change is returned as it is.
std::string WithPlainReferences(const std::string& json);

// What a library's message says, without times, source files and the conditions it checked; the
// lines of its log, each once.
std::string PlainMessage(std::string_view message);

}  // namespace tandem
