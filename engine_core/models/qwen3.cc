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
  ASSIGN_OR_RETURN(AttentionLayer layer, LoadAttention(context, place));
  RETURN_IF_ERROR(LoadHeadNorms(context, place, "q_norm", "k_norm", &layer));
  return layer;
}

StatusOr<std::unique_ptr<Stage>> LoadQwen3(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadQwen3Layer);
}

}  // namespace tandem
