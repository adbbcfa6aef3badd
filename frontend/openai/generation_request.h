#pragma once

// The fields that /v1/completions and /v1/chat/completions share, as the client sent them. An empty
// optional was not sent; processing applies the server's defaults.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "frontend/openai/field_schemas.h"
#include "frontend/openai/parse.h"
#include "frontend/openai/structured_outputs.h"

namespace tandem {

struct StreamOptions {
  bool include_usage = false;
  bool continuous_usage_stats = false;
};

// Ends a choice whose last tokens repeat a pattern min_count times.
struct RepetitionDetection {
  int64_t max_pattern_size = 0;  // tokens; 0: off
  int64_t min_pattern_size = 0;  // 0: 1
  int64_t min_count = 0;
};

struct GenerationRequest {
  std::optional<std::string> model;

  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  int64_t n = 1;

  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> seed;

  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;

  std::optional<int64_t> prompt_logprobs;
  std::optional<std::map<int64_t, double>> logit_bias;
  std::optional<std::vector<int64_t>> allowed_token_ids;
  std::vector<std::string> bad_words;
  std::vector<int64_t> logprob_token_ids;
  std::optional<RepetitionDetection> repetition_detection;
  std::optional<int64_t> thinking_token_budget;  // -1: none

  // Passed on, for engines that put a watermark into what they draw or report experts.
  std::optional<bool> watermarking;
  bool return_token_offsets = false;
  int64_t routed_experts_prompt_start = 0;

  bool use_beam_search = false;
  std::optional<double> length_penalty;  // of a beam search

  // What the output must be; StructuredOutputsOf makes one value of the three.
  std::optional<wire::StructuredOutputs> structured_outputs;
  std::optional<wire::StructuredOutputs> response_format;  // absent for the type text
  std::optional<wire::StructuredOutputs> guided;           // the older guided_* fields

  std::optional<bool> skip_special_tokens;
  bool spaces_between_special_tokens = true;
  std::optional<int64_t> truncate_prompt_tokens;
  std::optional<std::string> truncation_side;
  std::optional<bool> add_special_tokens;
  bool echo = false;

  bool stream = false;
  std::optional<StreamOptions> stream_options;
  std::optional<int64_t> stream_interval;

  int64_t priority = 0;
  std::optional<std::string> request_id;
  std::optional<std::string> session_id;
  std::optional<std::string> cache_salt;
  bool return_token_ids = false;
  std::vector<RetiredField> retired_fields;  // that the client sent
  std::optional<bool> return_tokens_as_token_ids;
  JsonDocument kv_transfer_params;  // object or null; passed to the engine unchanged
  JsonDocument ec_transfer_params;
  JsonDocument vllm_xargs;
  // Of /inference/v1/generate.
  bool skip_reading_prefix_cache = false;
  std::optional<std::vector<int64_t>> trace_decode_token_ids;  // the outputs
  // Scored at each place of the prompt from prompt_logprob_start on.
  std::optional<std::vector<std::vector<int64_t>>> prompt_logprob_token_ids;
  std::optional<int64_t> prompt_logprob_start;
};

// Parsers of fields with a form of their own.
Status ParseStop(Json& value, GenerationRequest* out);       // a string or several
Status ParseLogitBias(Json& value, GenerationRequest* out);  // {"token id": bias}
Status ParseStreamOptions(Json& value, GenerationRequest* out);
Status ParseKvTransferParams(Json& value, GenerationRequest* out);
Status ParseEcTransferParams(Json& value, GenerationRequest* out);
Status ParseXargs(Json& value, GenerationRequest* out);
Status ParseRepetitionDetection(Json& value, GenerationRequest* out);

// Refuses fields that contradict each other.
Status CheckGenerationRequest(const GenerationRequest& request);
// Whether it asks for another output than the most likely one, which a beam search looks for.
bool AsksBeamsInVain(const GenerationRequest& request);

inline constexpr int64_t kMaxSequences = 16384;  // of one request (n)
inline constexpr int64_t kMaxTokenId = 2147483647;
inline constexpr double kMaxLogitBias = 100;
inline constexpr double kMaxLengthPenalty = 100;
inline constexpr size_t kMaxLogprobTokenIds = 128;
inline constexpr int64_t kMaxRepetitionSize = 1 << 20;  // of each number in repetition_detection

inline constexpr ApiField<GenerationRequest> kGenerationFields[] = {
    {"model", &GenerationRequest::model, {}, "A served model name; absent: the first one."},
    {"max_tokens", &GenerationRequest::max_tokens, {0}, "Most tokens to generate."},
    {"min_tokens", &GenerationRequest::min_tokens, {0}, "Tokens to generate before a stop."},
    {"n", &GenerationRequest::n, {1, kMaxSequences}, "Choices per prompt; choice i uses seed+i."},
    {"temperature", &GenerationRequest::temperature, {0, 2}, "0 is greedy."},
    {"top_p",
     &GenerationRequest::top_p,
     {0, 1, true},
     "Sample from the smallest set with this mass."},
    {"top_k", &GenerationRequest::top_k, {-1, kMaxTokenId}, "Most likely tokens kept; 0, -1: all."},
    {"min_p", &GenerationRequest::min_p, {0, 1}, "Lowest probability, relative to the best token."},
    {"presence_penalty", &GenerationRequest::presence_penalty, {-2, 2}, "Once per seen token."},
    {"frequency_penalty", &GenerationRequest::frequency_penalty, {-2, 2}, "Per occurrence."},
    {"repetition_penalty",
     &GenerationRequest::repetition_penalty,
     {0, 1e6, true},
     "Divides logits of tokens seen in prompt and output; 1 is off."},
    {"seed", &GenerationRequest::seed, {}, "Makes sampling repeatable; -1: none."},
    {"stop", &ParseStop, {}, "At most 4 texts that end a choice.", field_schema::kStop},
    {"stop_token_ids", &GenerationRequest::stop_token_ids, {0, kMaxTokenId}, "Tokens that end it."},
    {"include_stop_str_in_output",
     &GenerationRequest::include_stop_str_in_output,
     {},
     "Keep the matched stop text in the output."},
    {"ignore_eos", &GenerationRequest::ignore_eos, {}, "Continue after the end token."},
    {"prompt_logprobs",
     &GenerationRequest::prompt_logprobs,
     {-1, kMaxTokenId},
     "Logprobs of prompt tokens; -1: the whole vocabulary. Not with stream."},
    {"logit_bias",
     &ParseLogitBias,
     {},
     "Added to logits, by token id, clamped to +-100.",
     field_schema::kLogitBias},
    {"allowed_token_ids",
     &GenerationRequest::allowed_token_ids,
     {0, kMaxTokenId},
     "Only these tokens are sampled."},
    {"bad_words", &GenerationRequest::bad_words, {1}, "Texts that the output never contains."},
    {"skip_special_tokens",
     &GenerationRequest::skip_special_tokens,
     {},
     "Leave them out of the text."},
    {"spaces_between_special_tokens",
     &GenerationRequest::spaces_between_special_tokens,
     {},
     "false: of two added tokens in a row the second is written as the vocabulary spells it."},
    {"truncate_prompt_tokens",
     &GenerationRequest::truncate_prompt_tokens,
     {-1, kMaxTokenId},
     "Prompt tokens to keep; -1: as many as fit."},
    {"truncation_side",
     &GenerationRequest::truncation_side,
     {},
     "The side to cut: left (default) or right."},
    {"add_special_tokens",
     &GenerationRequest::add_special_tokens,
     {},
     "Add BOS and the like; default true for completions, false for chat."},
    {"echo", &GenerationRequest::echo, {}, "The prompt (chat: last message) first."},
    {"stream", &GenerationRequest::stream, {}, "Server-sent events."},
    {"stream_options",
     &ParseStreamOptions,
     {},
     "{include_usage, continuous_usage_stats}.",
     field_schema::kStreamOptions},
    {"stream_interval",
     &GenerationRequest::stream_interval,
     {1, kMaxTokenId},
     "Tokens per event after the first; can only raise the server's."},
    {"priority", &GenerationRequest::priority, {}, "Lower runs first, under priority scheduling."},
    {"request_id", &GenerationRequest::request_id, {1, 128}, "Part of the response id."},
    {"session_id", &GenerationRequest::session_id, {1, 256}, "Passed to the engine."},
    {"cache_salt", &GenerationRequest::cache_salt, {1, 128}, "Separates cached prefixes."},
    {"return_token_ids",
     &GenerationRequest::return_token_ids,
     {},
     "Adds token ids to the response."},
    {"return_tokens_as_token_ids",
     &GenerationRequest::return_tokens_as_token_ids,
     {},
     "Prints tokens in logprobs as token_id:N."},
    {"kv_transfer_params",
     &ParseKvTransferParams,
     {},
     "Passed to the engine.",
     field_schema::kObject},
    {"ec_transfer_params",
     &ParseEcTransferParams,
     {},
     "Passed to the engine.",
     field_schema::kObject},
    {"vllm_xargs",
     &ParseXargs,
     {},
     "Extra arguments, passed to the engine.",
     field_schema::kObject},
    {"response_format",
     &ParseResponseFormat,
     {},
     "{type}: text, json_object, json_schema or structural_tag.",
     field_schema::kResponseFormat},
    {"structured_outputs",
     &ParseStructuredOutputs,
     {},
     "What the output must be: json, regex, choice, grammar, json_object or structural_tag.",
     field_schema::kObject},
    {"use_beam_search",
     &GenerationRequest::use_beam_search,
     {},
     "The n most likely responses, found by a search of this width. Not with stream."},
    {"length_penalty",
     &GenerationRequest::length_penalty,
     {-kMaxLengthPenalty, kMaxLengthPenalty},
     "Of a beam search: above 0 prefers long responses; default 1."},
    {"logprob_token_ids",
     &GenerationRequest::logprob_token_ids,
     {0, kMaxTokenId},
     "Logprobs of these tokens (at most 128) instead of the most likely ones; needs logprobs."},
    {"thinking_token_budget",
     &GenerationRequest::thinking_token_budget,
     {},
     "Most tokens of reasoning, after which its end is written; -1: no limit."},
    {"repetition_detection",
     &ParseRepetitionDetection,
     {},
     "Ends a choice that repeats itself: {max_pattern_size, min_pattern_size, min_count}.",
     field_schema::kRepetitionDetection},
    {"watermarking",
     &GenerationRequest::watermarking,
     {},
     "false: without the watermark of an engine that has one."},
    {"return_weight_versions",
     Ignored{},
     {},
     "weight_versions is null in any case: the weights of this server have one version."},
    {"return_token_offsets",
     &GenerationRequest::return_token_offsets,
     {},
     "Of render: which characters of the prompt each token stands for."},
    {"routed_experts_prompt_start",
     &GenerationRequest::routed_experts_prompt_start,
     {0, kMaxTokenId},
     "The first prompt token whose experts an engine reports that reports them."},
    {"return_mm_kwargs", Unsupported{"false"}, {}, "Older name: false is mm_payload none."},
    {"mm_payload", Unsupported{"\"none\""}, {}, "none: render returns no prepared images."},
    {"user", Ignored{}, {}, "Accepted, without effect."},
    {"guided_json", &ParseGuidedJson, {}, "Older name of structured_outputs.json."},
    {"guided_regex",
     &ParseGuidedRegex,
     {},
     "Older name of structured_outputs.regex.",
     field_schema::kText},
    {"guided_choice",
     &ParseGuidedChoice,
     {},
     "Older name of structured_outputs.choice.",
     field_schema::kTexts},
    {"guided_grammar",
     &ParseGuidedGrammar,
     {},
     "Older name of structured_outputs.grammar.",
     field_schema::kText},
    {"guided_json_object",
     &ParseGuidedJsonObject,
     {},
     "Older name of structured_outputs.json_object.",
     field_schema::kBoolean},
    {"guided_whitespace_pattern",
     &ParseGuidedWhitespacePattern,
     {},
     "Older name of structured_outputs.whitespace_pattern.",
     field_schema::kText},
    {"guided_decoding_backend", Retired{"structured_outputs"}, {}, "Gone from the API."},
    {"best_of", Retired{"n"}, {}, "Gone from the API."},
};

}  // namespace tandem
