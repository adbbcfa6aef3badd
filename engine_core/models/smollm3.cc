// SmolLM3: Llama's layer, without rotation in every fourth one.
// Source: Bakouch et al. 2025; HF's SmolLM3ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadSmolLm3Layer(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadLlamaLayer(context, place));
  layer.attention.has_rope = context.config.HasRope(place.idx);
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadSmolLm3(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadSmolLm3Layer);
}

}  // namespace tandem
