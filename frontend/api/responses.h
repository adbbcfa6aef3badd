#pragma once

// POST /v1/responses, made of chat's parts: its request becomes a chat request, its output items
// come from the same deltas.

#include <memory>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeResponse(const ApiContext& context);

}  // namespace tandem
