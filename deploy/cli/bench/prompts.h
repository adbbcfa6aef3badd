#pragma once

// The prompts of a load run, from one of the datasets. Pure but for reading the dataset's file; the
// same options, seed and tokenizer give the same prompts.
// Lengths are tokens. Without a tokenizer, generated prompts are lists of token ids (words when
// the API takes text only), and lengths of given text are guesses that the server's count corrects.
// Failure: NOT_FOUND or INVALID_ARGUMENT for a file that is missing, malformed or without prompts.

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "deploy/cli/bench/serve_options.h"
#include "frontend/text/tokenizer.h"

namespace tandem {

struct BenchPrompt {
  std::string text;
  std::vector<TokenId> token_ids;  // in place of text, when not empty
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  // requested
  // In place of text, when not empty: texts to make vectors of, or a query and its documents.
  std::vector<std::string> inputs = {};
  std::vector<std::string> images = {};  // data: URLs
};

// `tokenizer` may be null. `takes_token_ids`: whether the API takes prompts of ids.
StatusOr<std::vector<BenchPrompt>> MakePrompts(const BenchServeOptions& options,
                                               const Tokenizer* tokenizer, bool takes_token_ids);

// `count` ids below min(10000, vocab_size), for prompts that need no text.
std::vector<TokenId> RandomTokenIds(int64_t count, int64_t vocab_size, uint64_t seed);

}  // namespace tandem
