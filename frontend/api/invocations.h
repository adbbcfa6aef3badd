#pragma once

// POST /invocations, SageMaker's one route for all bodies. Of a model that generates, a body with
// messages is a chat request and one with a prompt a completion; of one that pools, its inputs
// choose among the routes.

#include <memory>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeInvocation(const ApiContext& context);
// REQUIRES: the model pools.
std::unique_ptr<GenerationCall> MakePoolingInvocation(const ApiContext& context);

}  // namespace tandem
