#include "engine_core/models/olmo2.h"

namespace tandem {

StatusOr<LlamaLayer> LoadOlmo2Layer(const LoadContext& context, const LayerPlace& place) {
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, place));
  RETURN_IF_ERROR(LoadProjectionNorms(context, place, &layer.attention));
  ASSIGN_OR_RETURN(layer.attention.post_norm,
                   LoadRmsNorm(context, place.prefix + ".post_attention_layernorm"));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  ASSIGN_OR_RETURN(layer.mlp.post_norm,
                   LoadRmsNorm(context, place.prefix + ".post_feedforward_layernorm"));
  return layer;
}

StatusOr<std::unique_ptr<Stage>> LoadOlmo2(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadOlmo2Layer);
}

}  // namespace tandem
