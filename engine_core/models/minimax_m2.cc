// MiniMax M2: norms over the whole projections of q and k, rotation of a part of each head, and in
// every layer a mixture chosen by sigmoids with a bias.
// Source: MiniMax 2025; HF's MiniMaxM2ForCausalLM.

#include <utility>

#include "engine_core/models/moe.h"

namespace tandem {
namespace {

StatusOr<AttentionLayer> LoadMiniMaxM2Attention(const LoadContext& context,
                                                const LayerPlace& place) {
  ASSIGN_OR_RETURN(AttentionLayer layer, LoadAttention(context, place));
  RETURN_IF_ERROR(LoadProjectionNorms(context, place, &layer));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadMiniMaxM2(const LoadContext& context) {
  const ModelConfig& config = context.config;
  MoeNames names = MixtralNames();
  names.router_bias = "e_score_correction_bias";
  return LoadMoeLike(context,
                     {.names = std::move(names),
                      .shape = {.num_experts = config.num_experts,
                                .top_k = config.num_experts_per_tok,
                                .intermediate_size = config.moe_intermediate_size,
                                .routing = {.score = RouterScore::kSigmoid, .renormalize = true}},
                      .load_attention = LoadMiniMaxM2Attention});
}

}  // namespace tandem
