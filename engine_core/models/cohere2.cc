// Command R: attention and MLP side by side after one LayerNorm without a bias, rotation of
// neighbours; R+ has a LayerNorm for each head of q and k. R7B and A have a window and rotation in
// most layers, neither in the others.
// Source: Cohere 2024 and 2025; HF's CohereForCausalLM and Cohere2ForCausalLM.

#include "engine_core/models/parallel.h"

namespace tandem {
namespace {

StatusOr<ParallelLayer> LoadCohereLayer(const LoadContext& context, const LayerPlace& place) {
  ParallelLayer layer;
  ASSIGN_OR_RETURN(layer.norm, LoadLayerNorm(context, place.prefix + ".input_layernorm",
                                             /*has_bias=*/false));
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, place));
  if (context.config.use_qk_norm) {
    RETURN_IF_ERROR(LoadNormsOfEachHead(context, place, &layer.attention));
  }
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  return layer;
}

StatusOr<ParallelLayer> LoadCohere2Layer(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(ParallelLayer layer, LoadCohereLayer(context, place));
  layer.attention.has_rope = context.config.WindowOf(place.idx) > 0;
  return layer;
}

StatusOr<std::unique_ptr<Stage>> Load(const LoadContext& context, ParallelLayerLoader load_layer) {
  DecoderOptions options;
  options.has_layer_norm = true;
  options.has_norm_bias = false;
  options.is_rope_interleaved = true;
  options.logits_scale = static_cast<float>(context.config.logit_scale);
  return LoadParallelLike(context, std::move(options), load_layer);
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadCohere(const LoadContext& context) {
  return Load(context, LoadCohereLayer);
}

StatusOr<std::unique_ptr<Stage>> LoadCohere2(const LoadContext& context) {
  return Load(context, LoadCohere2Layer);
}

}  // namespace tandem
