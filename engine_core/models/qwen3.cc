// Qwen3: Llama's layer with an RMS norm over each head of q and k before the rotation.
// Source: Yang et al. 2025; HF's Qwen3ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadQwen3Layer(const LoadContext& context, const std::string& prefix) {
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLlamaNorms(context, prefix, &layer));
  ASSIGN_OR_RETURN(layer.attention, LoadQwen3Attention(context, prefix + ".self_attn"));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, prefix + ".mlp"));
  return layer;
}

}  // namespace

StatusOr<AttentionLayer> LoadQwen3Attention(const LoadContext& context, const std::string& prefix) {
  const int64_t head_dim = context.config.head_dim;
  ASSIGN_OR_RETURN(AttentionLayer layer, LoadAttention(context, prefix));
  ASSIGN_OR_RETURN(layer.q_norm, LoadVector(context, prefix + ".q_norm.weight", head_dim));
  ASSIGN_OR_RETURN(layer.k_norm, LoadVector(context, prefix + ".k_norm.weight", head_dim));
  return layer;
}

StatusOr<std::unique_ptr<Model>> LoadQwen3(const LoadContext& context) {
  return LoadLlamaLike(context, LoadQwen3Layer);
}

}  // namespace tandem
