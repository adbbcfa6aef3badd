// Granite 3 and the dense Granite 4: Llama's layer with multipliers of embeddings, scores, what
// layers add, and logits.
// Source: Granite Team 2024; HF's GraniteForCausalLM.

#include "engine_core/models/granite.h"

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

void SetScale(const ModelConfig& config, AttentionLayer* layer) {
  if (config.attention_multiplier > 0) {
    layer->options.scale = static_cast<float>(config.attention_multiplier);
  }
}

StatusOr<LlamaLayer> LoadGraniteLayer(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadLlamaLayer(context, place));
  SetScale(context.config, &layer.attention);
  return layer;
}

}  // namespace

DecoderOptions GraniteOptions(const ModelConfig& config) {
  DecoderOptions options;
  options.residual_unit = static_cast<float>(config.residual_multiplier);
  options.embedding_scale =
      static_cast<float>(config.embedding_multiplier / config.residual_multiplier);
  options.logits_scale = static_cast<float>(1 / config.logits_scaling);
  return options;
}

StatusOr<AttentionLayer> LoadGraniteAttention(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(AttentionLayer layer, LoadAttention(context, place));
  SetScale(context.config, &layer);
  layer.has_rope = context.config.HasRope(place.idx);
  return layer;
}

StatusOr<std::unique_ptr<Stage>> LoadGranite(const LoadContext& context) {
  return LoadLlamaLike(context, GraniteOptions(context.config), LoadGraniteLayer);
}

}  // namespace tandem
