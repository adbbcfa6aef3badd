// Qwen3: Llama's layer with an RMS norm over each head of q and k before the rotation.
// Source: Yang et al. 2025; HF's Qwen3ForCausalLM.

#include "engine_core/models/llama.h"
#include "engine_core/models/registry.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadQwen3Layer(const LoadContext& context, const std::string& prefix) {
  const int64_t head_dim = context.config.head_dim;
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadLlamaLayer(context, prefix));
  ASSIGN_OR_RETURN(layer.attention.q_norm,
                   LoadVector(context, prefix + ".self_attn.q_norm.weight", head_dim));
  ASSIGN_OR_RETURN(layer.attention.k_norm,
                   LoadVector(context, prefix + ".self_attn.k_norm.weight", head_dim));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Model>> LoadQwen3(const LoadContext& context) {
  return LoadLlamaLike(context, LoadQwen3Layer);
}

}  // namespace tandem
