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

// What a library's message says, without times, source files and the conditions it checked.
std::string PlainMessage(std::string_view message);

}  // namespace tandem
