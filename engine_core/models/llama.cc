#include "engine_core/models/llama.h"

#include <utility>

namespace tandem {

void LlamaLayer::Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const {
  decoder->Norm(input_norm);
  decoder->Attend(attention, kv, plan);
  decoder->Norm(post_attention_norm);
  decoder->RunMlp(mlp);
}

StatusOr<LlamaLayer> LoadLlamaLayer(const LoadContext& context, const LayerPlace& place) {
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLlamaNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, place));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  return layer;
}

Status LoadLlamaNorms(const LoadContext& context, const LayerPlace& place, LlamaLayer* layer) {
  ASSIGN_OR_RETURN(layer->input_norm, LoadRmsNorm(context, place.prefix + ".input_layernorm"));
  ASSIGN_OR_RETURN(layer->post_attention_norm,
                   LoadRmsNorm(context, place.prefix + ".post_attention_layernorm"));
  return OkStatus();
}

Status LoadLayerNorms(const LoadContext& context, const LayerPlace& place, LlamaLayer* layer) {
  ASSIGN_OR_RETURN(layer->input_norm, LoadLayerNorm(context, place.prefix + ".input_layernorm"));
  ASSIGN_OR_RETURN(layer->post_attention_norm,
                   LoadLayerNorm(context, place.prefix + ".post_attention_layernorm"));
  return OkStatus();
}

Status LoadNormsAfter(const LoadContext& context, const LayerPlace& place, LlamaLayer* layer) {
  ASSIGN_OR_RETURN(layer->attention.post_norm,
                   LoadRmsNorm(context, place.prefix + ".post_attention_layernorm"));
  ASSIGN_OR_RETURN(layer->mlp.post_norm,
                   LoadRmsNorm(context, place.prefix + ".post_feedforward_layernorm"));
  return OkStatus();
}

StatusOr<std::unique_ptr<Stage>> LoadLlamaLike(const LoadContext& context, DecoderOptions options,
                                               LlamaLayerLoader load_layer) {
  return Stage::Load(
      context, std::move(options),
      [&](const LayerPlace& place) -> StatusOr<std::unique_ptr<Layer>> {
        ASSIGN_OR_RETURN(LlamaLayer layer, load_layer(context, place));
        return std::unique_ptr<Layer>(std::make_unique<LlamaLayer>(std::move(layer)));
      });
}

StatusOr<std::unique_ptr<Stage>> LoadLlama(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadLlamaLayer);
}

}  // namespace tandem
