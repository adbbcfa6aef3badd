// EXAONE 4: Llama's layer with its norms after attention and MLP, a norm over each head of q and k,
// and a window in most layers; the others do not rotate. Without a window in the config all do.
// Source: LG AI Research 2025; HF's Exaone4ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadExaone4Layer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, place));
  RETURN_IF_ERROR(LoadHeadNorms(context, place, "q_norm", "k_norm", &layer.attention));
  layer.attention.has_rope = !config.names_window || config.WindowOf(place.idx) > 0;
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  RETURN_IF_ERROR(LoadNormsAfter(context, place, &layer));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadExaone4(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadExaone4Layer);
}

}  // namespace tandem
