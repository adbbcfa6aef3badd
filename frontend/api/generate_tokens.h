#pragma once

// POST /inference/v1/generate: token ids in, token ids out, with the engine's sampling parameters.
// For callers that render and detokenize by themselves.

#include <memory>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeTokenGeneration(const ApiContext& context);

}  // namespace tandem
