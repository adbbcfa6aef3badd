// Hunyuan, dense: Llama's layer with a norm over each head of q and k after their rotation.
// Source: Tencent Hunyuan 2025; HF's HunYuanDenseV1ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadHunyuanLayer(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadLlamaLayer(context, place));
  if (!context.config.use_qk_norm) return layer;
  RETURN_IF_ERROR(
      LoadHeadNorms(context, place, "query_layernorm", "key_layernorm", &layer.attention));
  layer.attention.norms_after_rope = true;
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadHunyuan(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadHunyuanLayer);
}

}  // namespace tandem
