// Arcee's AFM: Llama's layer with an MLP without a gate.
// Source: Arcee AI 2025; HF's ArceeForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadArceeLayer(const LoadContext& context, const LayerPlace& place) {
  const std::string mlp = place.prefix + ".mlp";
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLlamaNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, place));
  ASSIGN_OR_RETURN(layer.mlp, LoadPlainMlp(context, mlp + ".up_proj", mlp + ".down_proj",
                                           context.config.mlp_bias));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadArcee(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadArceeLayer);
}

}  // namespace tandem
