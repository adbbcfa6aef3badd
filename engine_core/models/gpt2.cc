// GPT-2: learned positions instead of RoPE, LayerNorms, biases everywhere, an MLP without a gate,
// and matrices stored as [in, out].
// Source: Radford et al. 2019; HF's GPT2LMHeadModel.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

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
  const Slice hidden_slice = context.share.Of(hidden), q = context.heads().q_rows();
  const auto matrix = [&](const char* name, int64_t rows, Slice row_slice, int64_t columns) {
    return StoredMatrix{.name = prefix + name,
                        .rows = rows,
                        .columns = columns,
                        .row_slice = row_slice,
                        // GGUF has them as all others.
                        .is_transposed = config.quantization.method != QuantizationMethod::kGguf};
  };
  const StoredMatrix qkv[] = {matrix(".attn.c_attn", 3 * hidden, q, hidden),
                              matrix(".attn.c_attn", 3 * hidden, q.Shifted(hidden), hidden),
                              matrix(".attn.c_attn", 3 * hidden, q.Shifted(2 * hidden), hidden)};
  const StoredMatrix out[] = {matrix(".attn.c_proj", hidden, hidden_slice, hidden)};
  const StoredMatrix up[] = {matrix(".mlp.c_fc", inner, context.share.Of(inner), hidden)};
  const StoredMatrix down[] = {matrix(".mlp.c_proj", hidden, hidden_slice, inner)};
  const LinearOptions options = {.has_bias = true};
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.input_norm, LoadLayerNorm(context, prefix + ".ln_1"));
  ASSIGN_OR_RETURN(layer.attention.qkv, LoadLinear(context, qkv, options));
  ASSIGN_OR_RETURN(layer.attention.out, LoadLinear(context, out, options));
  layer.attention.options.scale = Gpt2Scale(config, place.idx);
  ASSIGN_OR_RETURN(layer.post_attention_norm, LoadLayerNorm(context, prefix + ".ln_2"));
  ASSIGN_OR_RETURN(layer.mlp.up, LoadLinear(context, up, options));
  ASSIGN_OR_RETURN(layer.mlp.down, LoadLinear(context, down, options));
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
