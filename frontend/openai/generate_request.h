#pragma once

// The body of POST /inference/v1/generate: token ids, and the engine's sampling parameters in an
// object of their own. They have the names of a completion's fields, so the body is read as one.

#include "frontend/openai/completion_request.h"

namespace tandem {

struct GenerateRequest : CompletionRequest {
  JsonDocument sampling_params;  // object; ParseGenerateRequest reads the fields in it
};

Status ParseTokenIds(Json& value, GenerateRequest* out);
Status ParseSamplingParams(Json& value, GenerateRequest* out);

inline constexpr ApiField<GenerateRequest> kGenerateFields[] = {
    {"token_ids", &ParseTokenIds, {}, "The prompt.", field_schema::kTokenIds},
    {"sampling_params",
     &ParseSamplingParams,
     {},
     "A completion's fields, such as max_tokens.",
     field_schema::kObject},
    {"features", Unsupported{}, {}, "Multimodal inputs."},
};

// Of a completion's fields these stand beside sampling_params, all others in it.
inline constexpr const char* kBesideSamplingParams[] = {
    "model",    "stream",     "stream_options", "cache_salt",
    "priority", "request_id", "session_id",     "kv_transfer_params"};

StatusOr<GenerateRequest> ParseGenerateRequest(Json body);

}  // namespace tandem
