#include "engine_core/models/gemma.h"

#include <cmath>

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadGemmaLayer(const LoadContext& context, const std::string& prefix) {
  const int64_t hidden = context.config.hidden_size;
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.input_norm,
                   LoadGemmaNorm(context, prefix + ".input_layernorm.weight", hidden));
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, prefix + ".self_attn"));
  ASSIGN_OR_RETURN(layer.post_attention_norm,
                   LoadGemmaNorm(context, prefix + ".post_attention_layernorm.weight", hidden));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, prefix + ".mlp"));
  return layer;
}

}  // namespace

DecoderOptions GemmaDecoderOptions(const ModelConfig& config) {
  DecoderOptions options;
  options.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  options.norm_offset = 1;
  return options;
}

StatusOr<OwnedTensor> LoadGemmaNorm(const LoadContext& context, const std::string& name,
                                    int64_t size) {
  return LoadVector(context, name, size, 1);
}

StatusOr<std::unique_ptr<Model>> LoadGemma(const LoadContext& context) {
  const ModelConfig& config = context.config;
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Load(context, GemmaDecoderOptions(config)));
  std::vector<LlamaLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    ASSIGN_OR_RETURN(LlamaLayer layer,
                     LoadGemmaLayer(context, "model.layers." + std::to_string(i)));
    layers.push_back(std::move(layer));
  }
  return MakeLlamaLike(std::move(decoder), std::move(layers));
}

}  // namespace tandem
