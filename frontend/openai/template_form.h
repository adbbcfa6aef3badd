#pragma once

// Forms that vLLM brings parts of a conversation into before its chat template shows them; those of
// messages one by one are in chat_request.h. Pure functions; any thread.

#include "frontend/openai/json.h"

namespace tandem {

// Each tool with the keys that the API knows, in their order: what a client leaves out is null, and
// what it adds is left out. writes_descriptions: the template writes a description without asking
// whether there is one, so a missing one is an empty text.
Json ToolsForTemplate(const Json& tools, bool writes_descriptions);

// For templates without the role developer: its messages are the system's. Templates mostly take
// one of those, as the first message, so all become one. REQUIRES: the form of MessagesForTemplate.
void DevelopersAsSystem(Json* messages);

// For gpt-oss' template. It shows no message of the system or a developer but the first of all, so
// they become that. And it refuses a message that has a call, content and reasoning: there the
// content follows the reasoning.
// REQUIRES: the form of MessagesForTemplate.
void SetHarmonyForm(Json* messages);

}  // namespace tandem
