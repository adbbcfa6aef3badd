// Gemma 3 (text): Gemma 2's layer with a norm over each head of q and k. Layers with a window have
// a RoPE of their own.

#include "engine_core/models/gemma.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadGemma3Layer(const LoadContext& context, const LayerPlace& place) {
  const int64_t head_dim = context.config.head_dim;
  const std::string prefix = place.prefix + ".self_attn";
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadGemma2Layer(context, place));
  ASSIGN_OR_RETURN(layer.attention.q_norm,
                   LoadVector(context, prefix + ".q_norm.weight", head_dim, 1));
  ASSIGN_OR_RETURN(layer.attention.k_norm,
                   LoadVector(context, prefix + ".k_norm.weight", head_dim, 1));
  layer.attention.use_local_rope = context.config.WindowOf(place.idx) > 0;
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadGemma3(const LoadContext& context) {
  DecoderOptions options = Gemma2Options(context.config);
  options.local_rope = context.config.local_rope;
  return LoadLlamaLike(context, options, LoadGemma3Layer);
}

}  // namespace tandem
