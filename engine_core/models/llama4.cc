// Llama 4 (text): attention within chunks in the layers that rotate neighbours, over everything in
// those that do not; in some layers one expert, chosen by its logit, and a shared one.
// Source: Meta 2025; HF's Llama4ForCausalLM.

#include <vector>

#include "engine_core/models/moe.h"
#include "engine_core/models/rope_table.h"

namespace tandem {
namespace {

StatusOr<OwnedTensor> Ones(const LoadContext& context, int64_t size) {
  std::vector<float> ones(static_cast<size_t>(size), 1.0f);
  return context.backend.device().Upload(Tensor(ones.data(), DType::kF32, {size}), DType::kF32);
}

// As in vLLM: where nothing is said, for contexts that are longer than the training's.
bool ScalesQueries(const LoadContext& context) {
  constexpr int64_t kLongContext = 32768;
  return context.config.attn_temperature_tuning || context.limits.max_positions > kLongContext;
}

StatusOr<AttentionLayer> LoadLlama4Attention(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  ASSIGN_OR_RETURN(AttentionLayer layer, LoadAttention(context, place));
  layer.has_rope = config.HasRope(place.idx);
  if (!layer.has_rope) {
    layer.scales_q = ScalesQueries(context);
    return layer;
  }
  layer.options.chunk = config.ChunkOf(place.idx);
  if (!config.use_qk_norm) return layer;
  ASSIGN_OR_RETURN(layer.q_norm, Ones(context, config.head_dim));
  ASSIGN_OR_RETURN(layer.k_norm, Ones(context, config.head_dim));
  layer.norms_after_rope = true;
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadLlama4(const LoadContext& context) {
  const ModelConfig& config = context.config;
  if (config.num_experts_per_tok != 1) {
    return UnimplementedError("num_experts_per_tok of " + config.architecture + " must be 1");
  }
  if (config.moe_intermediate_size > config.intermediate_size) {
    return UnimplementedError("intermediate_size " + std::to_string(config.moe_intermediate_size) +
                              " of " + config.architecture +
                              " must be at most intermediate_size_mlp");
  }
  DecoderOptions options;
  options.is_rope_interleaved = true;
  if (ScalesQueries(context)) {
    options.q_scale =
        QueryScales(config.attn_scale, config.floor_scale, 1, context.limits.max_positions);
  }
  return LoadMoeLike(context, {.names = {.block = "feed_forward",
                                         .shared = "shared_expert",
                                         .router = "router",
                                         .dense = "feed_forward"},
                               .shape = {.num_experts = config.num_experts,
                                         .top_k = 1,
                                         .intermediate_size = config.moe_intermediate_size,
                                         .routing = {.score = RouterScore::kSigmoid},
                                         .shared_intermediate_size = config.moe_intermediate_size,
                                         .scales_input = true},
                               .load_attention = LoadLlama4Attention,
                               .layout = ExpertLayout::kTransposedHalves,
                               .options = std::move(options)});
}

}  // namespace tandem
