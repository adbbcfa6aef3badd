// GLM-4.5 to 4.7: biases on q, k and v, in some sizes a norm over each head of q and k, rotation of
// the first half of each head; after the first layers a mixture chosen by sigmoids with a bias, and
// a shared expert.
// Source: GLM-4.5 Team 2025; HF's Glm4MoeForCausalLM.

#include "engine_core/models/moe.h"

namespace tandem {
namespace {

StatusOr<AttentionLayer> LoadGlm4MoeAttention(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  ASSIGN_OR_RETURN(AttentionLayer layer,
                   LoadAttention(context, place, {.qkv = config.attention_bias}));
  if (config.use_qk_norm) {
    RETURN_IF_ERROR(LoadHeadNorms(context, place, "q_norm", "k_norm", &layer));
  }
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadGlm4Moe(const LoadContext& context) {
  const ModelConfig& config = context.config;
  return LoadMoeLike(context, {.names = {.shared = "shared_experts",
                                         .router_bias = "gate.e_score_correction_bias"},
                               .shape = MixtureShape(config, GroupedSigmoids(config)),
                               .load_attention = LoadGlm4MoeAttention});
}

}  // namespace tandem
