#pragma once

// Shared by the tests that step a scheduler by hand: small configurations, requests whose prompts
// count up, and the records of a step.

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/client_outputs.h"
#include "engine_core/scheduler/scheduler_config.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// Four requests of up to 64 tokens, in blocks of 4.
inline KvCacheConfig SmallCache(int32_t num_blocks) {
  KvCacheConfig config;
  config.num_blocks = num_blocks;
  config.block_size = 4;
  config.max_num_seqs = 4;
  config.max_model_len = 64;
  return config;
}

inline SchedulerConfig SmallConfig(int32_t max_num_batched_tokens = 64) {
  SchedulerConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = max_num_batched_tokens;
  config.max_model_len = 64;
  return config;
}

// A prompt of first_token, first_token + 1, ...
inline wire::EngineCoreRequest CountingRequest(const RequestId& id, int32_t num_prompt_tokens,
                                               int32_t max_tokens, TokenId first_token = 0) {
  wire::EngineCoreRequest request;
  request.request_id = id;
  for (int32_t i = 0; i < num_prompt_tokens; ++i) {
    request.prompt_token_ids.push_back(first_token + i);
  }
  request.sampling_params.max_tokens = max_tokens;
  return request;
}

// Of all clients. finished: gets the requests that ended appended.
inline std::vector<wire::EngineCoreOutput> TakeRecords(ClientOutputs* outputs, double now,
                                                       std::vector<RequestId>* finished = nullptr) {
  std::vector<ClientMessage> messages;
  outputs->Take(now, &messages);
  std::vector<wire::EngineCoreOutput> records;
  for (ClientMessage& message : messages) {
    std::move(message.outputs.outputs.begin(), message.outputs.outputs.end(),
              std::back_inserter(records));
    if (finished == nullptr) continue;
    std::copy(message.outputs.finished_requests.begin(), message.outputs.finished_requests.end(),
              std::back_inserter(*finished));
  }
  return records;
}

}  // namespace tandem
