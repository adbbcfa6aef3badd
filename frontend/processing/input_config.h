#pragma once

// Defaults and limits of requests, from the operator and the model's files. Plain values, filled by
// main.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "frontend/openai/generation_request.h"
#include "frontend/openai/json.h"
#include "frontend/processing/image_prompt.h"
#include "frontend/processing/message_plan.h"
#include "frontend/processing/model_defaults.h"
#include "pooling/pooler_config.h"

namespace tandem {

struct InputConfig {
  std::string model;  // as --model names it, for messages
  ModelDefaults defaults;
  std::optional<ImageInputs> images;  // nullopt: the model takes none
  int64_t max_logprobs = 20;          // -1: up to the whole vocabulary
  int64_t max_stop_strings = 4;
  int64_t max_bad_words = 128;
  int64_t max_bad_words_total_tokens = 1024;
  int64_t max_completion_prompts = 1024;
  int64_t max_n_sequences = kMaxSequences;  // n, and n times the number of prompts
  int64_t max_beam_width = 64;
  int64_t max_fanout_bytes = 256 << 20;  // of all engine requests of one API request
  bool enable_prompt_embeds = false;
  bool enable_trace_replay = false;
  std::optional<PoolerConfig> pooling;  // the model pools; nullopt: it generates
  int64_t max_pooling_inputs = 2048;    // of one request
  bool has_score_template = false;      // the chat template is for a query and a document
  std::string response_role = "assistant";
  JsonDocument default_chat_template_kwargs;
  // What `reasoning_effort` becomes before a template sees it; efforts without a row stay.
  std::map<std::string, std::string> reasoning_efforts;
  std::string content_format = "auto";  // "string" or "openai": in place of what the template shows
  bool exclude_tools_when_tool_choice_none = false;
  bool trust_request_chat_template = false;  // requests may bring a template of their own
  ParserConfig parsers;
  // What `thinking: {"type": "disabled"}` of /v1/messages becomes: none, low, or auto by template.
  std::string anthropic_disabled_thinking_effort = "auto";
};

}  // namespace tandem
