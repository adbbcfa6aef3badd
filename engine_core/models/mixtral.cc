// Mixtral: Mistral's layer with a mixture of experts for each MLP.
// Source: Jiang et al. 2024; HF's MixtralForCausalLM.

#include "engine_core/models/moe.h"

namespace tandem {

StatusOr<std::unique_ptr<Stage>> LoadMixtral(const LoadContext& context) {
  const ModelConfig& config = context.config;
  return LoadMoeLike(context, {.names = MixtralNames(),
                               .shape = {.num_experts = config.num_experts,
                                         .top_k = config.num_experts_per_tok,
                                         .intermediate_size = config.moe_intermediate_size,
                                         .routing = {.renormalize = true}},
                               .load_attention = LoadAttention});
}

}  // namespace tandem
