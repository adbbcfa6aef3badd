#pragma once

// Specs in forms that xgrammar does not read itself, in forms that it does. Pure; any thread.

#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

// Whether a grammar is Lark's rather than EBNF: no line has a "::=" outside of comments.
bool LooksLikeLark(std::string_view grammar);

// vLLM's older form of structural tags, {structures: [{begin, schema, end}], triggers}, as today's;
// today's form is returned as it is. INVALID_ARGUMENT: it is neither.
StatusOr<std::string> CurrentStructuralTag(const std::string& tag_json);

// What a library's message says, without times, source files and the conditions it checked.
std::string PlainMessage(std::string_view message);

}  // namespace tandem
