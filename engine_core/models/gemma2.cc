// Gemma 2: Gemma with norms after attention and MLP as well, soft caps on scores and logits, and a
// window in every second layer.

#include "engine_core/models/gemma.h"

namespace tandem {

StatusOr<LlamaLayer> LoadGemma2Layer(const LoadContext& context, const std::string& prefix) {
  const ModelConfig& config = context.config;
  const int64_t hidden = config.hidden_size;
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, prefix + ".self_attn"));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, prefix + ".mlp"));
  ASSIGN_OR_RETURN(layer.input_norm,
                   LoadGemmaNorm(context, prefix + ".input_layernorm.weight", hidden));
  ASSIGN_OR_RETURN(layer.attention.post_norm,
                   LoadGemmaNorm(context, prefix + ".post_attention_layernorm.weight", hidden));
  ASSIGN_OR_RETURN(layer.post_attention_norm,
                   LoadGemmaNorm(context, prefix + ".pre_feedforward_layernorm.weight", hidden));
  ASSIGN_OR_RETURN(layer.mlp.post_norm,
                   LoadGemmaNorm(context, prefix + ".post_feedforward_layernorm.weight", hidden));
  if (config.query_pre_attn_scalar > 0) {
    layer.attention.options.scale = AttentionScale(config.query_pre_attn_scalar);
  }
  layer.attention.options.soft_cap = static_cast<float>(config.attn_logit_softcapping);
  return layer;
}

StatusOr<std::unique_ptr<Model>> LoadGemma2(const LoadContext& context) {
  const ModelConfig& config = context.config;
  DecoderOptions options = GemmaDecoderOptions(config);
  options.logits_soft_cap = static_cast<float>(config.final_logit_softcapping);
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Load(context, options));
  std::vector<LlamaLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    ASSIGN_OR_RETURN(LlamaLayer layer,
                     LoadGemma2Layer(context, "model.layers." + std::to_string(i)));
    layer.attention.options.sliding_window = config.WindowOf(i);
    layers.push_back(std::move(layer));
  }
  return MakeLlamaLike(std::move(decoder), std::move(layers));
}

}  // namespace tandem
