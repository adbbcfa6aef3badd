// OLMo 3: OLMo 2's layer with a window in most layers, which are rotated without the scaling of the
// others, or as the config says.
// Source: OLMo Team 2025; HF's Olmo3ForCausalLM.

#include "engine_core/models/olmo2.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadOlmo3Layer(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadOlmo2Layer(context, place));
  layer.attention.use_local_rope = context.config.WindowOf(place.idx) > 0;
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadOlmo3(const LoadContext& context) {
  DecoderOptions options;
  options.local_rope = context.config.local_rope;
  return LoadLlamaLike(context, std::move(options), LoadOlmo3Layer);
}

}  // namespace tandem
