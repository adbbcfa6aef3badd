#pragma once

// Whether a request's last token ends it. Pure. Stop strings are checked in the frontend.

#include <cstdint>
#include <optional>
#include <span>

#include "common/ids.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct Stop {
  wire::RequestStatus status;
  wire::StopReason reason;
};

// token_ids: prompt and outputs; the last one is checked. The order is EOS, stop ids, lengths,
// repetition. EOS and stop ids count even below min_tokens: the sampler keeps them from being
// drawn, so one that was drawn nevertheless ends the request.
std::optional<Stop> CheckStop(const wire::SamplingParams& params,
                              std::span<const TokenId> token_ids, int32_t num_prompt_tokens,
                              int32_t max_model_len);

// Whether the outputs end in min_count equal blocks of some length in the pattern range.
bool EndsInRepetition(std::span<const TokenId> outputs, const wire::RepetitionDetection& rule);

}  // namespace tandem
