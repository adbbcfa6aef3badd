// OPT: learned positions from the third row of their table on, LayerNorms, biases, an MLP without a
// gate.
// Source: Zhang et al. 2022; HF's OPTForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadOptLayer(const LoadContext& context, const LayerPlace& place) {
  const std::string& prefix = place.prefix;
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.input_norm, LoadLayerNorm(context, prefix + ".self_attn_layer_norm"));
  ASSIGN_OR_RETURN(layer.post_attention_norm, LoadLayerNorm(context, prefix + ".final_layer_norm"));
  ASSIGN_OR_RETURN(layer.attention.qkv,
                   LoadLinear(context, QkvBlocks(context, place), {.has_bias = true}));
  ASSIGN_OR_RETURN(layer.attention.out,
                   LoadRows(context, prefix + ".self_attn.out_proj", context.config.hidden_size,
                            HeadsOf(context.config).q_size(), /*has_bias=*/true));
  layer.attention.options = AttentionOptionsOf(context.config, place.idx);
  ASSIGN_OR_RETURN(layer.mlp,
                   LoadPlainMlp(context, prefix + ".fc1", prefix + ".fc2", /*has_bias=*/true));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadOpt(const LoadContext& context) {
  const std::string decoder = "model.decoder";
  if (context.weights.Has(decoder + ".project_in.weight")) {
    return UnimplementedError("word_embed_proj_dim of OPTForCausalLM must be hidden_size");
  }
  DecoderOptions options;
  options.embedding = decoder + ".embed_tokens";
  options.positions = decoder + ".embed_positions";
  options.first_position = 2;
  options.layers = decoder + ".layers";
  options.final_norm = decoder + ".final_layer_norm";
  options.has_layer_norm = true;
  return LoadLlamaLike(context, std::move(options), LoadOptLayer);
}

}  // namespace tandem
