// Phi-1, 1.5 and 2: attention and MLP side by side after one LayerNorm, biases everywhere, rotation
// of a part of each head.
// Source: Li et al. 2023; HF's PhiForCausalLM.

#include "engine_core/models/parallel.h"

namespace tandem {
namespace {

StatusOr<ParallelLayer> LoadPhiLayer(const LoadContext& context, const LayerPlace& place) {
  const std::string& prefix = place.prefix;
  const int64_t hidden = context.config.hidden_size;
  ParallelLayer layer;
  ASSIGN_OR_RETURN(layer.norm, LoadLayerNorm(context, prefix + ".input_layernorm"));
  ASSIGN_OR_RETURN(layer.attention.qkv,
                   LoadLinear(context, QkvBlocks(context, place), {.has_bias = true}));
  ASSIGN_OR_RETURN(layer.attention.out,
                   LoadRows(context, prefix + ".self_attn.dense", hidden,
                            HeadsOf(context.config).q_size(), /*has_bias=*/true));
  layer.attention.options = AttentionOptionsOf(context.config, place.idx);
  ASSIGN_OR_RETURN(layer.mlp, LoadPlainMlp(context, prefix + ".mlp.fc1", prefix + ".mlp.fc2",
                                           /*has_bias=*/true));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadPhi(const LoadContext& context) {
  DecoderOptions options;
  options.final_norm = "model.final_layernorm";
  options.has_layer_norm = true;
  options.has_head_bias = true;
  return LoadParallelLike(context, std::move(options), LoadPhiLayer);
}

}  // namespace tandem
