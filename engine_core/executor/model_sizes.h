#pragma once

// Sizes that follow from a model's configuration and the executor's limits: what its KV cache and
// attention look like, and what it must have room for. Thread: any; values.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine_core/executor/executor.h"
#include "engine_core/kv_cache/layer_groups.h"
#include "engine_core/models/load_context.h"
#include "engine_core/models/stage.h"
#include "engine_core/weights/model_config.h"
#include "kernels/paged_kv.h"

namespace tandem {

// The groups of a model's layers: one where all see all keys, or all have a window, or a state.
// Where there are both kinds, groups have as many layers as the rarer kind, or as the other where
// that has less than a quarter more, which leaves few places without a layer; this is vLLM's rule.
// One where a layer has keys and a state, or some layers have a window and others a state.
LayerGroups LayerGroupsOf(const ModelConfig& config);

// Where the keys and values, or the states, of each layer of a stage are if there are several
// groups. Layers of a kind fill their groups in order; the cache has as many layers as a group, and
// the layers of equal place in their groups share one of the cache's: a block is that of one group
// at a time. Each stage spreads its own layers over all groups, so a group may have none there, and
// its cache has as few layers as it can.
std::vector<KvPlace> KvPlacesOf(const ModelConfig& config, RankShare stage = {});

// The part of the cache's shape that the model decides, at one rank of some.
// groups: one, or those of LayerGroupsOf.
KvCacheSpec KvSpecOf(const ModelConfig& config, int32_t block_size, int64_t num_blocks,
                     KvFormat format = KvFormat::kCompute, const RankPlace& place = {},
                     const LayerGroups& groups = {});

// Tokens per block where nobody has said: 16 on a device, else 32. With recurrent layers so many
// that the states of a block take no more than its keys and values, in tiles of 32; with several
// groups, where a block has either, no more than those in its place.
// share: whose parts of a state, keys and values these are; all ranks have equally large ones.
int64_t DefaultBlockSize(const ModelConfig& config, DType dtype, KvFormat format, bool is_device,
                         const LayerGroups& groups = {}, RankShare share = {});
// For the log: "70,272 bytes per token in 61 layers of latents", and what a block takes for states.
// Of groups what a token takes in those that keep all of it, and in those that keep recent ones.
std::string KvMemoryText(const ModelConfig& config, const KvCacheSpec& spec,
                         const LayerGroups& groups, int64_t bytes_per_block);

AttentionShape AttentionShapeOf(const ModelConfig& config, RankShare share = {});
// For layers that keep a state in the cache's blocks; without effect if there are none.
void AddStates(const KvCacheSpec& spec, AttentionShape* shape);

// What a model must have room for to run under these limits.
ModelLimits ModelLimitsOf(const ExecutorLimits& limits);

// Numbers of rows for which a step, and a drafter's pass, are timed at start.
constexpr std::array<int32_t, 6> kMeasuredRows = {1, 2, 4, 8, 16, 32};

}  // namespace tandem
