// Falcon: attention and MLP side by side, after one LayerNorm (7B) or one each (40B, 180B); q, k
// and v in one matrix, by key-value head.
// Source: Almazrouei et al. 2023; HF's FalconForCausalLM.

#include "engine_core/models/parallel.h"

namespace tandem {
namespace {

StatusOr<ParallelLayer> LoadFalconLayer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const std::string attention = place.prefix + ".self_attention", mlp = place.prefix + ".mlp";
  const bool has_bias = config.attention_bias;
  // Later sizes; some of them have a single norm again.
  const bool has_two_norms = context.weights.Has(place.prefix + ".ln_attn.weight");
  ParallelLayer layer;
  ASSIGN_OR_RETURN(
      layer.norm,
      LoadLayerNorm(context, place.prefix + (has_two_norms ? ".ln_attn" : ".input_layernorm")));
  if (has_two_norms) {
    ASSIGN_OR_RETURN(layer.mlp_norm, LoadLayerNorm(context, place.prefix + ".ln_mlp"));
  }
  ASSIGN_OR_RETURN(layer.attention.qkv, LoadMergedQkv(context, attention + ".query_key_value",
                                                      has_bias, RunsByKvHead(context)));
  ASSIGN_OR_RETURN(layer.attention.out, LoadRows(context, attention + ".dense", config.hidden_size,
                                                 HeadsOf(config).q_size(), has_bias));
  layer.attention.options = AttentionOptionsOf(config, place.idx);
  ASSIGN_OR_RETURN(layer.mlp,
                   LoadPlainMlp(context, mlp + ".dense_h_to_4h", mlp + ".dense_4h_to_h", has_bias));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadFalcon(const LoadContext& context) {
  DecoderOptions options;
  options.embedding = "transformer.word_embeddings";
  options.layers = "transformer.h";
  options.final_norm = "transformer.ln_f";
  options.has_layer_norm = true;
  return LoadParallelLike(context, std::move(options), LoadFalconLayer);
}

}  // namespace tandem
