#pragma once

// The wire's SamplingParams → the SamplingConfig that samplers read: defaults made concrete, and a
// seed for requests without one. Thread: pure function. REQUIRES: ids and ranges were checked at
// ingress (engine_core/request_check.h). Failure: more logprobs than the server allows.

#include <cstdint>
#include <string_view>

#include "common/status.h"
#include "kernels/sampling_config.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct SamplingLimits {
  int64_t vocab_size = 0;
  int64_t max_logprobs = 20;  // -1: the whole vocabulary
  LogprobsMode logprobs_mode = LogprobsMode::kRawLogprobs;
  uint64_t process_seed = 0;  // with the request's id it is the seed of an unseeded request
};

StatusOr<SamplingConfig> ResolveSampling(const wire::SamplingParams& params,
                                         std::string_view request_id, const SamplingLimits& limits);

}  // namespace tandem
