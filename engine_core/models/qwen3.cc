#include "engine_core/models/qwen3.h"

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadQwen3Layer(const LoadContext& context, const LayerPlace& place) {
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLlamaNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention, LoadQwen3Attention(context, place));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  return layer;
}

}  // namespace

StatusOr<AttentionLayer> LoadQwen3Attention(const LoadContext& context, const LayerPlace& place) {
  const int64_t head_dim = context.config.head_dim;
  const std::string prefix = place.prefix + ".self_attn";
  ASSIGN_OR_RETURN(AttentionLayer layer, LoadAttention(context, place));
  ASSIGN_OR_RETURN(layer.q_norm, LoadVector(context, prefix + ".q_norm.weight", head_dim));
  ASSIGN_OR_RETURN(layer.k_norm, LoadVector(context, prefix + ".k_norm.weight", head_dim));
  return layer;
}

StatusOr<std::unique_ptr<Stage>> LoadQwen3(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadQwen3Layer);
}

}  // namespace tandem
