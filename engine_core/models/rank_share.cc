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

Status CheckRanks(const ModelConfig& config, const RankSizes& sizes) {
  const int tensor_parallel_size = sizes.tensor_parallel_size;
  const std::string flag = "--tensor-parallel-size " + std::to_string(tensor_parallel_size);
  if (config.recurrent.num_layers() > 0) {
    RETURN_IF_ERROR(CheckRecurrentRanks(config.recurrent, tensor_parallel_size, flag));
  }
  if (config.is_uneven() && (tensor_parallel_size > 1 || sizes.pipeline_parallel_size > 1)) {
    return InvalidArgumentError(
        (tensor_parallel_size > 1
             ? flag
             : "--pipeline-parallel-size " + std::to_string(sizes.pipeline_parallel_size)) +
        ": is not built for models whose layers differ in their heads, as those of " +
        config.architecture + " do");
  }
  const auto check_divides = [&](const char* name, int64_t n) {
    if (n % tensor_parallel_size == 0) return OkStatus();
    return InvalidArgumentError(flag + ": must divide the model's " + name + ", which is " +
                                std::to_string(n));
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
  if (RankShare{tensor_parallel_size - 1, tensor_parallel_size}.OfAbout(config.vocab_size).count <
      1) {
    return InvalidArgumentError(flag + ": is too much for the model's vocab_size, which is " +
                                std::to_string(config.vocab_size));
  }
  if (config.num_kv_heads % tensor_parallel_size != 0 &&
      tensor_parallel_size % config.num_kv_heads != 0) {
    return InvalidArgumentError(
        flag + ": must divide the model's num_key_value_heads or be a multiple of it, which is " +
        std::to_string(config.num_kv_heads));
  }
  if (sizes.pipeline_parallel_size > config.num_layers) {
    return InvalidArgumentError("--pipeline-parallel-size " +
                                std::to_string(sizes.pipeline_parallel_size) +
                                ": must be at most the model's number of layers, which is " +
                                std::to_string(config.num_layers));
  }
  for (int stage = 1; stage < sizes.pipeline_parallel_size; ++stage) {
    const int64_t first = LayersOf(config.num_layers, {stage, sizes.pipeline_parallel_size}).begin;
    if (!config.index.IsShared(first)) continue;
    return InvalidArgumentError("--pipeline-parallel-size " +
                                std::to_string(sizes.pipeline_parallel_size) +
                                ": a stage would begin with layer " + std::to_string(first) +
                                ", whose tokens attend to the keys that the layer before chooses");
  }
  return OkStatus();
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

AttentionShape HeadShare::attention_shape() const {
  return {.num_heads = static_cast<int>(heads.count),
          .num_kv_heads = static_cast<int>(kv_heads.count),
          .head_dim = static_cast<int>(head_dim)};
}

HeadShare HeadsOfLayer(const ModelConfig& config, int64_t layer) {
  return {.head_dim = config.HeadDimOf(layer),
          .heads = {0, config.num_heads},
          .kv_heads = {0, config.KvHeadsOf(layer)}};
}

HeadShare HeadsOf(const ModelConfig& config, RankShare share) {
  CHECK(config.num_kv_heads % share.size == 0 || share.size % config.num_kv_heads == 0)
      << config.num_kv_heads << " for " << share.size << " ranks";
  const Slice heads = share.Of(config.num_heads);
  const int64_t group = config.num_heads / config.num_kv_heads;  // query heads of a key-value head
  const int64_t first_kv = heads.begin / group, last_kv = (heads.end() - 1) / group;
  return {.head_dim = config.head_dim,
          .heads = heads,
          .kv_heads = {.begin = first_kv, .count = last_kv - first_kv + 1}};
}

}  // namespace tandem
