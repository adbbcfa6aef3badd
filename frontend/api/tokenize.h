#pragma once

// POST /tokenize (a text or a conversation → token ids) and POST /detokenize (token ids → text).
// Thread: handlers run on the exchange's shard, the work on the text pool.

#include <string>

#include "common/status.h"
#include "frontend/api/context.h"
#include "frontend/http/router.h"
#include "frontend/net/net.h"
#include "frontend/openai/json.h"

namespace tandem {

// Request body → response body; pure. Of a conversation without images.
StatusOr<std::string> TokenizeBodyToJson(Json body, const InputProcessor& input_processor,
                                         const ApiOptions& options, const ServedAdapters& adapters,
                                         int64_t max_model_len);
StatusOr<std::string> DetokenizeBodyToJson(Json body, const InputProcessor& input_processor,
                                           const ApiOptions& options,
                                           const ServedAdapters& adapters);

Awaitable<void> HandleTokenize(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleDetokenize(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleTokenizerInfo(Exchange& exchange, ApiContext* context);

// What GET /tokenizer_info returns: the model's tokenizer_config.json (may be empty) with the class
// that a reader needs and the chat template in use (may be empty).
StatusOr<std::string> TokenizerInfo(std::string_view config_json, const std::string& chat_template);

}  // namespace tandem
