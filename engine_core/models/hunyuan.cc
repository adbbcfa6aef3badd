// Hunyuan: Llama's layer with a norm over each head of q and k after their rotation; dense, or a
// mixture with a shared expert in every layer.
// Source: Tencent Hunyuan 2025; HF's HunYuanDenseV1ForCausalLM and HunYuanMoEV1ForCausalLM.

#include "engine_core/models/llama.h"
#include "engine_core/models/moe.h"

namespace tandem {
namespace {

Status SetNorms(const LoadContext& context, const LayerPlace& place, AttentionLayer* layer) {
  if (!context.config.use_qk_norm) return OkStatus();
  layer->norms_after_rope = true;
  return LoadHeadNorms(context, place, "query_layernorm", "key_layernorm", layer);
}

StatusOr<LlamaLayer> LoadHunyuanLayer(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadLlamaLayer(context, place));
  RETURN_IF_ERROR(SetNorms(context, place, &layer.attention));
  return layer;
}

StatusOr<AttentionLayer> LoadHunyuanAttention(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(AttentionLayer layer, LoadAttention(context, place));
  RETURN_IF_ERROR(SetNorms(context, place, &layer));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadHunyuan(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadHunyuanLayer);
}

StatusOr<std::unique_ptr<Stage>> LoadHunyuanMoe(const LoadContext& context) {
  return LoadMoeLike(context, {.names = {.shared = "shared_mlp", .router = "gate.wg"},
                               .shape = MixtureShape(context.config, {.renormalize = true}),
                               .load_attention = LoadHunyuanAttention});
}

}  // namespace tandem
