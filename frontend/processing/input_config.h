#pragma once

// What the operator and the model's files say about requests: defaults, and the limits of what one
// request may ask for. Plain values, filled by main.

#include <cstdint>
#include <string>

#include "frontend/openai/generation_request.h"
#include "frontend/openai/json.h"
#include "frontend/processing/model_defaults.h"

namespace tandem {

struct InputConfig {
  ModelDefaults defaults;
  int64_t max_logprobs = 20;  // -1: the whole vocabulary may be asked for
  int64_t max_stop_strings = 4;
  int64_t max_bad_words = 128;
  int64_t max_bad_words_total_tokens = 1024;
  int64_t max_completion_prompts = 1024;
  int64_t max_n_sequences = kMaxSequences;  // n, and n times the number of prompts
  int64_t max_fanout_bytes = 256 << 20;     // of all engine requests made from one request
  std::string response_role = "assistant";
  JsonDocument default_chat_template_kwargs;
};

}  // namespace tandem
