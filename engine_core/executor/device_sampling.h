#pragma once

// Which requests draw on the device, and what its sampler has to know of them.
// Thread: engine loop, at admission. The rest (lists and numbers of logprobs beyond the sampler's
// limits) draws on the host, from a copied row: rare, and all of it has one home in
// engine_core/sampling.

#include "engine_core/sampling/sampling_config.h"
#include "kernels/device_sampler.h"

namespace tandem {

// Spans are of `config`; the request's tokens are yet to be given.
DeviceAdmission DeviceAdmissionOf(const SamplingConfig& config, int32_t num_prompt_logprobs,
                                  size_t vocab_size);

bool DrawsOnDevice(const DeviceAdmission& admission);

}  // namespace tandem
