#pragma once

// Sizes that follow from a model's configuration and the executor's limits: what its KV cache and
// attention look like, and what it must have room for. Thread: any; values.

#include <array>
#include <cstdint>

#include "engine_core/executor/executor.h"
#include "engine_core/models/load_context.h"
#include "engine_core/weights/model_config.h"
#include "kernels/paged_kv.h"

namespace tandem {

// The part of the cache's shape that the model decides, at one rank of some.
KvCacheSpec KvSpecOf(const ModelConfig& config, int32_t block_size, int64_t num_blocks,
                     KvFormat format = KvFormat::kCompute, const RankPlace& place = {});

// Tokens per block where nobody has said: 16 on a device, else 32. With recurrent layers so many
// that the states of a block take no more than its keys and values, in tiles of 32.
int64_t DefaultBlockSize(const ModelConfig& config, DType dtype, bool is_device);
// For the log: "70,272 bytes per token in 61 layers of latents", and what a block takes for states.
std::string KvMemoryText(const KvCacheSpec& spec, int64_t bytes_per_block);

AttentionShape AttentionShapeOf(const ModelConfig& config, RankShare share = {});

// What a model must have room for to run under these limits.
ModelLimits ModelLimitsOf(const ExecutorLimits& limits);

// Numbers of rows for which a step, and a drafter's pass, are timed at start.
constexpr std::array<int32_t, 6> kMeasuredRows = {1, 2, 4, 8, 16, 32};

}  // namespace tandem
