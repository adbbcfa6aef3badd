// OLMoE: a mixture in every layer, norms over the whole projections of q and k.
// Source: Muennighoff et al. 2024; HF's OlmoeForCausalLM.

#include "engine_core/models/moe.h"

namespace tandem {
namespace {

StatusOr<AttentionLayer> LoadOlmoeAttention(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(AttentionLayer layer, LoadAttention(context, place));
  RETURN_IF_ERROR(LoadProjectionNorms(context, place, &layer));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadOlmoe(const LoadContext& context) {
  const ModelConfig& config = context.config;
  return LoadMoeLike(context, {.names = {},
                               .shape = {.num_experts = config.num_experts,
                                         .top_k = config.num_experts_per_tok,
                                         .intermediate_size = config.moe_intermediate_size,
                                         .routing = {.renormalize = config.norm_topk_prob}},
                               .load_attention = LoadOlmoeAttention});
}

}  // namespace tandem
