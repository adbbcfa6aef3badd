#pragma once

// The fields that describe what an output must be: response_format, structured_outputs and the
// older guided_* names. All three end as one value of the wire with exactly one constraint. Here
// only the form of the fields is checked. Whether a schema, a pattern or a grammar can be compiled
// is known to the engine, which refuses it before any output. Pure functions; any thread.

#include <string_view>

#include "common/status.h"
#include "frontend/openai/json.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct GenerationRequest;

inline constexpr int kMaxSchemaDepth = 64;  // nesting of the JSON in a constraint

Status ParseResponseFormat(Json& value, GenerationRequest* out);
Status ParseStructuredOutputs(Json& value, GenerationRequest* out);
Status ParseGuidedJson(Json& value, GenerationRequest* out);
Status ParseGuidedRegex(Json& value, GenerationRequest* out);
Status ParseGuidedChoice(Json& value, GenerationRequest* out);
Status ParseGuidedGrammar(Json& value, GenerationRequest* out);
Status ParseGuidedJsonObject(Json& value, GenerationRequest* out);
Status ParseGuidedWhitespacePattern(Json& value, GenerationRequest* out);

// structured_outputs by itself must have one constraint.
Status CheckStructuredOutputs(const GenerationRequest& request);
// What the output must be; empty when nothing is asked for. Refuses two constraints, and an empty
// one.
StatusOr<wire::Rare<wire::StructuredOutputs>> StructuredOutputsOf(const GenerationRequest& request);

// The field that asks for it, for errors about it; empty: there is none.
std::string_view ConstraintField(const GenerationRequest& request);

// The constraint under its name: {"regex": "…"}, {"json": {…}}, {"structural_tag": {…}} …
Json ConstraintJson(const wire::StructuredOutputs& outputs);
// Replaces the constraint by one of that form; how JSON is spelled stays as it is. Refuses one that
// is nested too deeply: it comes from the request's tools.
Status SetConstraint(const Json& constraint, wire::StructuredOutputs* outputs);

}  // namespace tandem
