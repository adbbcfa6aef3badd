// Granite 3 and the dense Granite 4: Llama's layer with multipliers of embeddings, scores, what
// layers add, and logits.
// Source: Granite Team 2024; HF's GraniteForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadGraniteLayer(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadLlamaLayer(context, place));
  if (context.config.attention_multiplier > 0) {
    layer.attention.options.scale = static_cast<float>(context.config.attention_multiplier);
  }
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadGranite(const LoadContext& context) {
  const ModelConfig& config = context.config;
  DecoderOptions options;
  options.residual_unit = static_cast<float>(config.residual_multiplier);
  options.embedding_scale =
      static_cast<float>(config.embedding_multiplier / config.residual_multiplier);
  options.logits_scale = static_cast<float>(1 / config.logits_scaling);
  return LoadLlamaLike(context, std::move(options), LoadGraniteLayer);
}

}  // namespace tandem
