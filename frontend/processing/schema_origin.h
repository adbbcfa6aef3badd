#pragma once

// The field of a chat that a schema of its constraint is from, for the error when an engine refuses
// the schema. Reads the constraint again: no other request has to know. Pure; any thread.

#include <optional>
#include <string>

#include "frontend/processing/message_plan.h"

namespace tandem {

struct SchemaOrigin {
  std::string field;  // "tools[1].function.parameters"; empty: the request's own constraint
  std::string function;
};

// tool_tag: of the chat (ChatConstraint); without one a named tool's schema is the whole
// constraint. index: among the tag's schemas (grammar/schema/schema_fault.h); nullopt: the tag has
// one alone. Returns nullopt where no schema is meant, or one that several tools are part of.
std::optional<SchemaOrigin> OriginOfSchema(const std::string& tool_tag, const MessagePlan& plan,
                                           std::optional<size_t> index);

}  // namespace tandem
