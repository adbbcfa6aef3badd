// Command R7B and A: attention and MLP side by side after one LayerNorm without a bias, a window
// and rotation of neighbours in most layers, neither in the others.
// Source: Cohere 2025; HF's Cohere2ForCausalLM.

#include "engine_core/models/parallel.h"

namespace tandem {
namespace {

StatusOr<ParallelLayer> LoadCohere2Layer(const LoadContext& context, const LayerPlace& place) {
  ParallelLayer layer;
  ASSIGN_OR_RETURN(layer.norm, LoadLayerNorm(context, place.prefix + ".input_layernorm",
                                             /*has_bias=*/false));
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, place));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  layer.attention.has_rope = context.config.WindowOf(place.idx) > 0;
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadCohere2(const LoadContext& context) {
  DecoderOptions options;
  options.has_layer_norm = true;
  options.has_norm_bias = false;
  options.is_rope_interleaved = true;
  options.logits_scale = static_cast<float>(context.config.logit_scale);
  return LoadParallelLike(context, std::move(options), LoadCohere2Layer);
}

}  // namespace tandem
