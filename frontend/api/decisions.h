#pragma once

// POST /v1/decisions, as OpenAI's and vLLM's, and POST /v1/systemone, as vLLM's: how likely each
// option of each question is to be the model's answer. A request for each question that draws one
// token; the probabilities are of the options' labels in its place.

#include <memory>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeDecisions(const ApiContext& context);
std::unique_ptr<GenerationCall> MakeSystemOne(const ApiContext& context);

}  // namespace tandem
