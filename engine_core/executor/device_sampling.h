#pragma once

// Which requests draw on the device, and what its sampler has to know of them.
// Thread: engine loop, at admission. The rest (bad words of several tokens, logprobs other than the
// raw ones of the top tokens, long lists) draws on the host, from a copied row: rare, and all of it
// has one home in engine_core/sampling.

#include "engine_core/sampling/sampling_config.h"
#include "kernels/device_sampler.h"

namespace tandem {

bool DrawsOnDevice(const SamplingConfig& config);

// Spans are of `config` and `token_ids` (the prompt, then the outputs), and of `banned_token_ids`,
// which is overwritten. REQUIRES DrawsOnDevice(config).
DeviceAdmission DeviceAdmissionOf(const SamplingConfig& config, size_t vocab_size,
                                  std::span<const TokenId> token_ids, int32_t num_prompt_tokens,
                                  std::vector<TokenId>* banned_token_ids);

}  // namespace tandem
