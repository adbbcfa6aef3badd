#pragma once

// The body of POST /inference/v1/generate: token ids, and the engine's sampling parameters in an
// object of their own. They have the names of a completion's fields, so the body is read as one.

#include "frontend/openai/completion_request.h"

namespace tandem {

struct GenerateRequest : CompletionRequest {
  JsonDocument sampling_params;  // object; ParseGenerateRequest reads the fields in it
  // How far the response goes: token ids, their text too, or the message that a chat makes of it.
  enum class OutputMode { kTokens, kText, kDerender } output_mode = OutputMode::kTokens;
  JsonDocument parse_context;  // kDerender: an object with those of a chat's fields that matter
  bool detokenize = true;      // false: nobody reads a text
};

// The name of a mode in the API.
std::string_view OutputModeName(GenerateRequest::OutputMode mode);

Status ParseTokenIds(Json& value, GenerateRequest* out);
Status ParseSamplingParams(Json& value, GenerateRequest* out);
Status ParseOutputMode(Json& value, GenerateRequest* out);
Status ParseParseContext(Json& value, GenerateRequest* out);
Status ParseReasoningParserKwargs(Json& value, GenerateRequest* out);
Status ParsePromptLogprobTokenIds(Json& value, GenerateRequest* out);
// Adds to vllm_xargs, which have the same place on the wire.
Status ParseExtraArgs(Json& value, GenerateRequest* out);

inline constexpr ApiField<GenerateRequest> kGenerateFields[] = {
    {"token_ids", &ParseTokenIds, {}, "The prompt.", field_schema::kTokenIds},
    {"sampling_params",
     &ParseSamplingParams,
     {},
     "A completion's fields, such as max_tokens.",
     field_schema::kObject},
    {"output_mode",
     &ParseOutputMode,
     {},
     "tokens, text (and its logprobs with texts) or derender (a chat's message).",
     field_schema::kOutputMode},
    {"parse_context",
     &ParseParseContext,
     {},
     "What render made of a chat's tools and template variables, for derender.",
     field_schema::kObject},
    {"reasoning_ended",
     &CompletionRequest::reasoning_ended,
     {},
     "false: structured outputs begin after the reasoning."},
    {"reasoning_parser_kwargs",
     &ParseReasoningParserKwargs,
     {},
     "The chat_template_kwargs of the prompt, for the engine.",
     field_schema::kObject},
    {"token_offsets", Ignored{}, {}, "As render returns them; not read."},
    {"features", Unsupported{}, {}, "Multimodal inputs."},
    {"content_parts", Unsupported{"[]"}, {}, "Multimodal inputs."},
};

// What sampling_params have besides a completion's fields.
inline constexpr ApiField<GenerateRequest> kSamplingParamsFields[] = {
    {"extra_args",
     &ParseExtraArgs,
     {},
     "Passed to the engine, as vllm_xargs.",
     field_schema::kObject},
    {"skip_reading_prefix_cache",
     &GenerateRequest::skip_reading_prefix_cache,
     {},
     "true: all of the prompt is computed, whatever is cached."},
    {"detokenize",
     &GenerateRequest::detokenize,
     {},
     "false: no text is made, so not with stop or another output_mode than tokens."},
    {"prompt_logprob_token_ids",
     &ParsePromptLogprobTokenIds,
     {},
     "A list of token ids for each place of the prompt but its last, whose logprobs as the next "
     "token are returned; -1: none.",
     field_schema::kTokenIdRows},
    {"prompt_logprob_start",
     &GenerateRequest::prompt_logprob_start,
     {0, kMaxTokenId},
     "The place of the first of these lists."},
    {"trace_decode_token_ids",
     &GenerateRequest::trace_decode_token_ids,
     {0, kMaxTokenId},
     "The outputs: none is sampled. Needs --enable-trace-replay."},
    {"flat_logprobs", Ignored{}, {}, "How an engine of vLLM's keeps logprobs."},
    {"output_kind", Ignored{}, {}, "stream decides."},
    {"skip_clone", Ignored{}, {}, "Of vLLM's own code."},
    {"output_text_buffer_length", Ignored{}, {}, "Of vLLM's own code."},
};

// Of a completion's fields these stand beside sampling_params, all others in it.
inline constexpr const char* kBesideSamplingParams[] = {
    "model",      "stream",     "stream_options",     "cache_salt",         "priority",
    "request_id", "session_id", "kv_transfer_params", "ec_transfer_params", "return_token_ids"};

StatusOr<GenerateRequest> ParseGenerateRequest(Json body);

}  // namespace tandem
