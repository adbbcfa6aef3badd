// StableLM: Llama's layer with LayerNorms, rotation of a part of each head, and in some sizes
// biases on q, k and v.
// Source: Bellagente et al. 2024; HF's StableLmForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadStableLmLayer(const LoadContext& context, const LayerPlace& place) {
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLayerNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention,
                   LoadAttention(context, place, {.qkv = context.config.attention_bias}));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadStableLm(const LoadContext& context) {
  DecoderOptions options;
  options.has_layer_norm = true;
  return LoadLlamaLike(context, std::move(options), LoadStableLmLayer);
}

}  // namespace tandem
