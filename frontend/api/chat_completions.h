#pragma once

// POST /v1/chat/completions, and /v1/chat/completions/batch: many conversations, one response.

#include <memory>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeChatCompletion(const ApiContext& context);
std::unique_ptr<GenerationCall> MakeChatBatch(const ApiContext& context);

}  // namespace tandem
