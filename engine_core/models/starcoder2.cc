// StarCoder2: LayerNorms, biases, an MLP without a gate, a window in all layers.
// Source: Lozhkov et al. 2024; HF's Starcoder2ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadStarcoder2Layer(const LoadContext& context, const LayerPlace& place) {
  const std::string mlp = place.prefix + ".mlp";
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLayerNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, place));
  ASSIGN_OR_RETURN(layer.mlp, LoadPlainMlp(context, mlp + ".c_fc", mlp + ".c_proj",
                                           context.config.attention_bias));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadStarcoder2(const LoadContext& context) {
  DecoderOptions options;
  options.has_layer_norm = true;
  return LoadLlamaLike(context, std::move(options), LoadStarcoder2Layer);
}

}  // namespace tandem
