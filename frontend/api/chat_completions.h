#pragma once

// POST /v1/chat/completions.

#include <memory>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeChatCompletion(const ApiContext& context);

}  // namespace tandem
