#pragma once

// Logprob arrays of the wire → tokens with text. Pure; any thread.

#include <vector>

#include "frontend/openai/responses.h"
#include "frontend/text/tokenizer.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct LogprobsStyle {
  bool skip_special_tokens = true;  // special tokens get an empty text
  bool as_token_ids = false;        // "token_id:5" instead of the text
};

// Appends one entry per row. Ids outside the tokenizer's vocabulary get an empty text.
void AppendPositionLogprobs(const Tokenizer& tokenizer, const LogprobsStyle& style,
                            const wire::LogprobsRows& rows, std::vector<PositionLogprobs>* out);

}  // namespace tandem
