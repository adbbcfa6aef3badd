#pragma once

// POST /invocations, SageMaker's one route for all bodies: a body with messages is a chat request,
// one with a prompt a completion.

#include <memory>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeInvocation(const ApiContext& context);

}  // namespace tandem
