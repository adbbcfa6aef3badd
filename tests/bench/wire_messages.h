#pragma once

// The messages that the wire's benchmarks encode and decode.

#include <cstdint>
#include <string>

#include "proto_msgpack/schema.h"

namespace tandem::wire {

// One output token for each of num_requests, with stats.
inline EngineCoreOutputs Step(int64_t num_requests) {
  EngineCoreOutputs step;
  step.timestamp = 12.5;
  for (int64_t i = 0; i < num_requests; ++i) {
    EngineCoreOutput& output = step.outputs.emplace_back();
    output.request_id = "chatcmpl-0123456789abcdef-" + std::to_string(i);
    output.new_token_ids = {static_cast<TokenId>(1000 + i)};
  }
  step.scheduler_stats.emplace().num_running_reqs = num_requests;
  return step;
}

// With 1000 prompt tokens.
inline EngineCoreRequest LongRequest() {
  EngineCoreRequest request;
  request.request_id = "cmpl-0123456789abcdef";
  for (TokenId i = 0; i < 1000; ++i) request.prompt_token_ids.push_back(i * 97);
  request.sampling_params.temperature = 0.7;
  request.sampling_params.max_tokens = 100;
  return request;
}

}  // namespace tandem::wire
