// Ministral 3: Llama's layer; beyond the length of its first training, queries grow with their
// position.
// Source: Mistral AI 2025; HF's Ministral3ForCausalLM.

#include "engine_core/models/llama.h"
#include "engine_core/models/rope_table.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadMinistral3Layer(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadLlamaLayer(context, place));
  layer.attention.scales_q = context.config.rope.llama_4_scaling_beta > 0;
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadMinistral3(const LoadContext& context) {
  const RopeConfig& rope = context.config.rope;
  DecoderOptions options;
  if (rope.llama_4_scaling_beta > 0) {
    options.q_scale = QueryScales(rope.llama_4_scaling_beta,
                                  static_cast<double>(rope.original_max_position_embeddings), 0,
                                  context.limits.max_positions);
  }
  return LoadLlamaLike(context, std::move(options), LoadMinistral3Layer);
}

}  // namespace tandem
