#pragma once

// How vLLM's ExampleConnector names the KV of a prompt's begin. Thread: any; pure functions.

#include <cstdint>
#include <span>
#include <string>

#include "common/ids.h"
#include "engine_core/kv_cache/extra_keys.h"

namespace tandem {

// The part of a prompt that is stored: whole blocks, and less than all of it, because its last
// token is computed in any case.
constexpr int32_t NumStoredTokens(int32_t num_prompt_tokens, int32_t block_size) {
  return num_prompt_tokens <= 0 ? 0 : (num_prompt_tokens - 1) / block_size * block_size;
}

// 32 hex digits: MD5 of the ids as int64 little-endian and of the identifiers of all multimodal
// items, joined by '-'. A cache salt, which vLLM leaves out, is part of the name. Adapters and
// embeddings are not: their KV has no name.
std::string PrefixKey(std::span<const TokenId> tokens, const ExtraKeys& extra_keys);

}  // namespace tandem
