#include "engine_core/models/gemma.h"

#include <cmath>

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadGemmaLayer(const LoadContext& context, const LayerPlace& place) {
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.input_norm, LoadGemmaNorm(context, place.prefix + ".input_layernorm"));
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, place));
  ASSIGN_OR_RETURN(layer.post_attention_norm,
                   LoadGemmaNorm(context, place.prefix + ".post_attention_layernorm"));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  return layer;
}

}  // namespace

DecoderOptions GemmaOptions(const ModelConfig& config) {
  DecoderOptions options;
  options.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  options.norm_offset = 1;
  return options;
}

StatusOr<NormLayer> LoadGemmaNorm(const LoadContext& context, const std::string& name) {
  return LoadRmsNorm(context, name, 1);
}

StatusOr<std::unique_ptr<Stage>> LoadGemma(const LoadContext& context) {
  return LoadLlamaLike(context, GemmaOptions(context.config), LoadGemmaLayer);
}

}  // namespace tandem
