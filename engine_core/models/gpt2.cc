// GPT-2: learned positions instead of RoPE, LayerNorms, biases everywhere, an MLP without a gate,
// and matrices stored as [in, out].
// Source: Radford et al. 2019; HF's GPT2LMHeadModel.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

// A matrix stored as [columns, rows], and its bias.
StatusOr<LinearLayer> LoadTransposed(const LoadContext& context, const std::string& name,
                                     int64_t rows, int64_t columns) {
  const RowBlock block[] = {{name, rows}};
  return LoadLinear(context, block, columns, {.has_bias = true, .is_transposed = true});
}

// The checkpoint's names begin with "transformer.", except in the oldest ones.
std::string Gpt2Prefix(const Weights& weights) {
  return weights.Has("wte.weight") ? "" : "transformer.";
}

float Gpt2Scale(const ModelConfig& config, int64_t layer) {
  const float scale =
      config.scale_attn_weights ? AttentionScale(static_cast<double>(config.head_dim)) : 1;
  return config.scale_attn_by_inverse_layer_idx ? scale / static_cast<float>(layer + 1) : scale;
}

StatusOr<LlamaLayer> LoadGpt2Layer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const std::string& prefix = place.prefix;
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.input_norm, LoadLayerNorm(context, prefix + ".ln_1"));
  ASSIGN_OR_RETURN(layer.attention.qkv,
                   LoadTransposed(context, prefix + ".attn.c_attn", 3 * hidden, hidden));
  ASSIGN_OR_RETURN(layer.attention.out,
                   LoadTransposed(context, prefix + ".attn.c_proj", hidden, hidden));
  layer.attention.options.scale = Gpt2Scale(config, place.idx);
  ASSIGN_OR_RETURN(layer.post_attention_norm, LoadLayerNorm(context, prefix + ".ln_2"));
  ASSIGN_OR_RETURN(layer.mlp.up, LoadTransposed(context, prefix + ".mlp.c_fc", inner, hidden));
  ASSIGN_OR_RETURN(layer.mlp.down, LoadTransposed(context, prefix + ".mlp.c_proj", hidden, inner));
  layer.mlp.activation = Activation::kGelu;
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadGpt2(const LoadContext& context) {
  if (context.config.hidden_act != "gelu_new") {
    return InvalidArgumentError("activation_function " + context.config.hidden_act +
                                " of GPT2LMHeadModel must be gelu_new");
  }
  const std::string prefix = Gpt2Prefix(context.weights);
  DecoderOptions options;
  options.embedding = prefix + "wte";
  options.positions = prefix + "wpe";
  options.layers = prefix + "h";
  options.final_norm = prefix + "ln_f";
  options.has_layer_norm = true;
  return LoadLlamaLike(context, options, LoadGpt2Layer);
}

}  // namespace tandem
