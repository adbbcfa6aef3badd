#pragma once

// What a request's output must be (wire::StructuredOutputs), as a grammar's spec.
// Pure; any thread. Failure: INVALID_ARGUMENT for no constraint, two, or one that says nothing;
// UNIMPLEMENTED for what no library here enforces. Whether the text of the spec is valid is found
// out where it is compiled.

#include "common/status.h"
#include "grammar/protocol.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct GrammarDefaults {
  bool disable_any_whitespace = false;  // of requests that do not say so themselves
  bool enable_in_reasoning = false;     // grammars hold from the first token, also of reasoning
};

StatusOr<GrammarSpec> MakeGrammarSpec(const wire::StructuredOutputs& outputs,
                                      const GrammarDefaults& defaults = {});

}  // namespace tandem
