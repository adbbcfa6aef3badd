// OLMo 2: Llama's layer with its norms after attention and MLP instead of before them, and norms
// over the whole projections of q and k.
// Source: OLMo Team 2024; HF's Olmo2ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadOlmo2Layer(const LoadContext& context, const std::string& prefix) {
  const ModelConfig& config = context.config;
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, prefix + ".self_attn"));
  ASSIGN_OR_RETURN(
      layer.attention.q_projection_norm,
      LoadVector(context, prefix + ".self_attn.q_norm.weight", config.num_heads * config.head_dim));
  ASSIGN_OR_RETURN(layer.attention.k_projection_norm,
                   LoadVector(context, prefix + ".self_attn.k_norm.weight",
                              config.num_kv_heads * config.head_dim));
  ASSIGN_OR_RETURN(
      layer.attention.post_norm,
      LoadVector(context, prefix + ".post_attention_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, prefix + ".mlp"));
  ASSIGN_OR_RETURN(
      layer.mlp.post_norm,
      LoadVector(context, prefix + ".post_feedforward_layernorm.weight", config.hidden_size));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Model>> LoadOlmo2(const LoadContext& context) {
  return LoadLlamaLike(context, LoadOlmo2Layer);
}

}  // namespace tandem
