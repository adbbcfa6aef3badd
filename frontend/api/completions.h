#pragma once

// POST /v1/completions.

#include <memory>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeCompletion(const ApiContext& context);

}  // namespace tandem
