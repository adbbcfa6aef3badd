#pragma once

// Guesses from a template's tree what form of `content` it was written for. Pure; any thread.

#include "frontend/chat/chat_template.h"
#include "frontend/jinja/ast.h"

namespace tandem {

// kParts when a loop walks over a message's content, directly, through a variable or as `content`;
// a loop after an `is string` test counts too. As in vLLM a macro's parameter of another name is
// not followed: such a template gets texts, for which it has a branch anyway.
ContentFormat FindContentFormat(const jinja::Template& source);

}  // namespace tandem
