#pragma once

// Whether a request uses what is cached of its prefix. Pure; any thread.

#include "engine_core/scheduler/request.h"

namespace tandem {

// A cached prefix makes no logits, so prompt logprobs need the whole prompt computed.
inline bool ReadsPrefixCache(const Request& request) {
  const wire::SamplingParams& params = request.wire.sampling_params;
  return !params.skip_reading_prefix_cache.value_or(params.prompt_logprobs.has_value() ||
                                                    !params.prompt_logprob_token_ids.is_nil());
}

}  // namespace tandem
