// OLMo 2: Llama's layer with its norms after attention and MLP instead of before them, and norms
// over the whole projections of q and k.
// Source: OLMo Team 2024; HF's Olmo2ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadOlmo2Layer(const LoadContext& context, const LayerPlace& place) {
  // Over the heads of all ranks.
  const HeadShare heads = HeadsOf(context.config);
  const std::string attention = place.prefix + ".self_attn";
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, place));
  ASSIGN_OR_RETURN(layer.attention.q_projection_norm,
                   LoadVector(context, attention + ".q_norm.weight", heads.q_size()));
  ASSIGN_OR_RETURN(layer.attention.k_projection_norm,
                   LoadVector(context, attention + ".k_norm.weight", heads.kv_size()));
  ASSIGN_OR_RETURN(layer.attention.post_norm,
                   LoadRmsNorm(context, place.prefix + ".post_attention_layernorm"));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  ASSIGN_OR_RETURN(layer.mlp.post_norm,
                   LoadRmsNorm(context, place.prefix + ".post_feedforward_layernorm"));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadOlmo2(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadOlmo2Layer);
}

}  // namespace tandem
