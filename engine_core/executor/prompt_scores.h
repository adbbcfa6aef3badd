#pragma once

// Logprobs of chosen tokens at places of a prompt (SamplingParams::prompt_logprob_token_ids).
// The wire has a matrix of token ids: a row for each place from prompt_logprob_start to the one
// before the prompt's last. The ids of a place are scored as guesses of the token after it; -1 is
// no token. Thread: values; rows of different places may be filled at once. Failure:
// INVALID_ARGUMENT with what is wrong.

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// Refuses what does not fit the prompt or the vocabulary. Afterwards the matrix is of int32 and
// lies in the parameters, not in a frame of the message. A request without one passes.
Status CheckPromptScoreIds(int32_t vocab_size, wire::EngineCoreRequest* request);

class PromptScores {
 public:
  // REQUIRES: CheckPromptScoreIds passed the request, which has a matrix.
  static StatusOr<PromptScores> For(const wire::SamplingParams& params);

  // The first place that is scored.
  int32_t begin() const { return begin_; }
  // `logits` are those after the place. Places before begin() have no row.
  void Fill(int32_t place, std::span<const float> logits, bool normalized);
  // As the wire has them: float32, -infinity where there is no token.
  wire::RawValue Packed() const;

 private:
  int32_t begin_ = 0;
  int64_t num_rows_ = 0;
  int64_t num_columns_ = 0;
  std::vector<TokenId> ids_;   // [num_rows_, num_columns_]
  std::vector<float> scores_;  // likewise, filled chunk by chunk
};

}  // namespace tandem
