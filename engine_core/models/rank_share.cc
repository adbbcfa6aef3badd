#include "engine_core/models/rank_share.h"

#include <algorithm>
#include <string>

#include "common/check.h"
#include "engine_core/models/recurrent_share.h"

namespace tandem {

Slice RankShare::Of(int64_t n) const {
  CHECK(rank >= 0 && rank < size && n % size == 0) << n << " for rank " << rank << " of " << size;
  return {.begin = n / size * rank, .count = n / size};
}

Slice RankShare::OfAbout(int64_t n) const {
  const int64_t most = (n + size - 1) / size, begin = std::min(n, most * rank);
  return {.begin = begin, .count = std::min(most, n - begin)};
}

namespace {

// Where the last stage begins at the latest: with the first layer whose keys and values a later one
// reads.
int64_t LastBeginOf(const ModelConfig& config) {
  int64_t begin = config.num_layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    if (config.KvLayerOf(i) != i) begin = std::min(begin, config.KvLayerOf(i));
  }
  return begin;
}

Status CheckStages(const ModelConfig& config, int num_stages) {
  const std::string flag = "--pipeline-parallel-size " + std::to_string(num_stages);
  if (num_stages > config.num_layers) {
    return InvalidArgumentError(flag + ": must be at most the model's number of layers, which is " +
                                std::to_string(config.num_layers));
  }
  if (const int64_t begin = LastBeginOf(config); num_stages - 1 > begin) {
    return InvalidArgumentError(flag + ": must be at most " + std::to_string(begin + 1) +
                                ", as the layers from " + std::to_string(begin) +
                                " on, whose keys and values the model's last layers read, are in " +
                                "one stage with these");
  }
  for (int stage = 1; stage < num_stages; ++stage) {
    if (LayersOf(config, {stage - 1, num_stages}).count > 0) continue;
    return InvalidArgumentError(flag + ": stage " + std::to_string(stage - 1) +
                                " would have no layer, as layers whose tokens attend to the keys " +
                                "that an earlier one chooses are in one stage with it");
  }
  return OkStatus();
}

// The heads of a layer that has these numbers of them.
HeadShare ShareOfHeads(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim, RankShare share) {
  CHECK(num_kv_heads % share.size == 0 || share.size % num_kv_heads == 0)
      << num_kv_heads << " for " << share.size << " ranks";
  const Slice heads = share.Of(num_heads);
  const int64_t group = num_heads / num_kv_heads;  // query heads of a key-value head
  const int64_t first_kv = heads.begin / group, last_kv = (heads.end() - 1) / group;
  return {.head_dim = head_dim,
          .heads = heads,
          .kv_heads = {.begin = first_kv, .count = last_kv - first_kv + 1}};
}

}  // namespace

Status CheckRanks(const ModelConfig& config, const RankSizes& sizes) {
  const int tensor_parallel_size = sizes.tensor_parallel_size;
  const std::string flag = "--tensor-parallel-size " + std::to_string(tensor_parallel_size);
  if (config.recurrent.num_layers() > 0) {
    RETURN_IF_ERROR(CheckRecurrentRanks(config.recurrent, tensor_parallel_size, flag));
  }
  const auto check_divides = [&](const char* name, int64_t n) {
    if (n % tensor_parallel_size == 0) return OkStatus();
    return InvalidArgumentError(flag + ": must divide the model's " + name + ", which is " +
                                std::to_string(n));
  };
  const auto check_kv_heads = [&](const char* name, int64_t n) {
    if (n % tensor_parallel_size == 0 || tensor_parallel_size % n == 0) return OkStatus();
    return InvalidArgumentError(flag + ": must divide the model's " + name +
                                " or be a multiple of it, which is " + std::to_string(n));
  };
  RETURN_IF_ERROR(check_divides("num_attention_heads", config.num_heads));
  RETURN_IF_ERROR(check_divides("hidden_size", config.hidden_size));
  RETURN_IF_ERROR(check_divides("intermediate_size", config.intermediate_size));
  if (sizes.splits_experts) {
    RETURN_IF_ERROR(check_divides("number of experts", config.num_experts));
  } else if (!config.mixture_layers.empty()) {
    RETURN_IF_ERROR(check_divides("moe_intermediate_size", config.moe_intermediate_size));
  }
  RETURN_IF_ERROR(check_divides("moe_latent_size", config.moe_latent_size));
  RETURN_IF_ERROR(
      check_divides("shared experts, whose size is their sum", config.shared_intermediate_size));
  RETURN_IF_ERROR(check_divides("hidden_size_per_layer_input", config.uneven.input_size));
  if (RankShare{tensor_parallel_size - 1, tensor_parallel_size}.OfAbout(config.vocab_size).count <
      1) {
    return InvalidArgumentError(flag + ": is too much for the model's vocab_size, which is " +
                                std::to_string(config.vocab_size));
  }
  RETURN_IF_ERROR(check_kv_heads("num_key_value_heads", config.num_kv_heads));
  if (config.is_uneven()) {
    RETURN_IF_ERROR(
        check_kv_heads("num_global_key_value_heads", config.uneven.num_global_kv_heads));
  }
  return CheckStages(config, sizes.pipeline_parallel_size);
}

Slice LayersOf(int64_t num_layers, RankShare stage) {
  CHECK(stage.rank >= 0 && stage.rank < stage.size) << stage.rank << " of " << stage.size;
  const int64_t layers = num_layers / stage.size, extra = num_layers % stage.size;
  // The stages that have one layer more are [first_long, size - 1).
  const int64_t first_long = stage.size - 1 - extra;
  const int64_t num_long_before = std::clamp<int64_t>(stage.rank - first_long, 0, extra);
  const bool is_long = stage.rank >= first_long && stage.rank < stage.size - 1;
  return {.begin = stage.rank * layers + num_long_before, .count = layers + (is_long ? 1 : 0)};
}

namespace {

// Where the stage begins; rank `size`: where the last one ends.
int64_t BeginOf(const ModelConfig& config, int rank, int size) {
  if (rank == size) return config.num_layers;
  const int64_t last_begin = LastBeginOf(config);
  const bool is_even = LayersOf(config.num_layers, {size - 1, size}).begin <= last_begin;
  int64_t begin = is_even            ? LayersOf(config.num_layers, {rank, size}).begin
                  : rank == size - 1 ? last_begin
                                     : LayersOf(last_begin, {rank, size - 1}).begin;
  while (begin < config.num_layers && config.index.IsShared(begin)) --begin;
  return begin;
}

}  // namespace

Slice LayersOf(const ModelConfig& config, RankShare stage) {
  const int64_t begin = BeginOf(config, stage.rank, stage.size);
  return {begin, BeginOf(config, stage.rank + 1, stage.size) - begin};
}

AttentionShape HeadShare::attention_shape() const {
  return {.num_heads = static_cast<int>(heads.count),
          .num_kv_heads = static_cast<int>(kv_heads.count),
          .head_dim = static_cast<int>(head_dim)};
}

HeadShare HeadsOfLayer(const ModelConfig& config, int64_t layer, RankShare share) {
  return ShareOfHeads(config.num_heads, config.KvHeadsOf(layer), config.HeadDimOf(layer), share);
}

HeadShare HeadsOf(const ModelConfig& config, RankShare share) {
  return ShareOfHeads(config.num_heads, config.num_kv_heads, config.head_dim, share);
}

}  // namespace tandem
