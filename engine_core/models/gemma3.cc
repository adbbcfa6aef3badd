// Gemma 3 (text): Gemma 2's layer with norms of q and k per head; layers with a window turn by
// angles of their own.

#include "engine_core/models/gemma.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadGemma3Layer(const LoadContext& context, int64_t index) {
  const ModelConfig& config = context.config;
  const std::string prefix = "model.layers." + std::to_string(index);
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadGemma2Layer(context, prefix));
  ASSIGN_OR_RETURN(layer.attention.q_norm,
                   LoadGemmaNorm(context, prefix + ".self_attn.q_norm.weight", config.head_dim));
  ASSIGN_OR_RETURN(layer.attention.k_norm,
                   LoadGemmaNorm(context, prefix + ".self_attn.k_norm.weight", config.head_dim));
  layer.attention.options.sliding_window = config.WindowOf(index);
  layer.attention.use_local_rope = config.WindowOf(index) > 0;
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Model>> LoadGemma3(const LoadContext& context) {
  const ModelConfig& config = context.config;
  DecoderOptions options = GemmaDecoderOptions(config);
  options.logits_soft_cap = static_cast<float>(config.final_logit_softcapping);
  options.local_rope = config.local_rope;
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Load(context, options));
  std::vector<LlamaLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    ASSIGN_OR_RETURN(LlamaLayer layer, LoadGemma3Layer(context, i));
    layers.push_back(std::move(layer));
  }
  return MakeLlamaLike(std::move(decoder), std::move(layers));
}

}  // namespace tandem
