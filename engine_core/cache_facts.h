#pragma once

// The KV cache as vLLM's CacheConfig describes it, for the labels of vllm:cache_config_info: names
// and values in turn, the values as Python prints them. What this engine does not have has vLLM's
// default. An engine that speculates has "tandem_num_speculative_tokens" among them, which is no
// label. Thread: main; pure. After SizeKvCache.

#include <string>
#include <vector>

#include "engine_core/config.h"

namespace tandem {

std::vector<std::string> CacheFacts(const EngineConfig& config, const ModelConfig& model,
                                    const EngineSetup& setup);

}  // namespace tandem
