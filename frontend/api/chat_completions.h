#pragma once

// POST /v1/chat/completions, and /v1/chat/completions/batch: many conversations, one response.

#include <memory>

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "frontend/api/collected_choice.h"
#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeChatCompletion(const ApiContext& context);
std::unique_ptr<GenerationCall> MakeChatBatch(const ApiContext& context);

// The message of a choice. forces_calls: one of calls alone has an empty content, not none.
nlohmann::ordered_json ChatMessageJson(const std::string& role, bool forces_calls,
                                       const CollectedChoice& choice);

}  // namespace tandem
