#pragma once

// POST /generative_scoring, as vLLM's: how likely a token is to follow a query with each of many
// items. A request for each item that draws one token; the score is of the label's logprob.

#include <memory>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeGenerativeScoring(const ApiContext& context);

}  // namespace tandem
