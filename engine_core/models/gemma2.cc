// Gemma 2: Gemma with norms after attention and MLP as well, soft caps on scores and logits, and a
// window in every second layer.

#include "engine_core/models/gemma.h"

namespace tandem {

DecoderOptions Gemma2Options(const ModelConfig& config) {
  DecoderOptions options = GemmaOptions(config);
  options.logits_soft_cap = static_cast<float>(config.final_logit_softcapping);
  return options;
}

StatusOr<LlamaLayer> LoadGemma2Layer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const auto load_norm = [&](const char* name) {
    return LoadGemmaNorm(context, place.prefix + "." + name);
  };
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, place));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  ASSIGN_OR_RETURN(layer.input_norm, load_norm("input_layernorm"));
  ASSIGN_OR_RETURN(layer.attention.post_norm, load_norm("post_attention_layernorm"));
  ASSIGN_OR_RETURN(layer.post_attention_norm, load_norm("pre_feedforward_layernorm"));
  ASSIGN_OR_RETURN(layer.mlp.post_norm, load_norm("post_feedforward_layernorm"));
  if (config.query_pre_attn_scalar > 0) {
    layer.attention.options.scale = AttentionScale(config.query_pre_attn_scalar);
  }
  layer.attention.options.soft_cap = static_cast<float>(config.attn_logit_softcapping);
  return layer;
}

StatusOr<std::unique_ptr<Stage>> LoadGemma2(const LoadContext& context) {
  return LoadLlamaLike(context, Gemma2Options(context.config), LoadGemma2Layer);
}

}  // namespace tandem
