#pragma once

// Guesses from a template's tree what form of `content` it was written for. Pure; any thread.

#include "frontend/chat/chat_template.h"
#include "frontend/jinja/ast.h"

namespace tandem {

// kParts when a loop walks over a message's content, directly, through a variable or in a macro
// that receives it; a loop after an `is string` test counts too.
ContentFormat FindContentFormat(const jinja::Template& source);

}  // namespace tandem
