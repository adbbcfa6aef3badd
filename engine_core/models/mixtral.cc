// Mixtral: Mistral's layer with a mixture of experts for each MLP.
// Source: Jiang et al. 2024; HF's MixtralForCausalLM.

#include "engine_core/models/moe.h"

namespace tandem {

StatusOr<std::unique_ptr<Stage>> LoadMixtral(const LoadContext& context) {
  const ModelConfig& config = context.config;
  return LoadMoeLike(
      context, {.names = {.block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"},
                .shape = {.num_experts = config.num_experts,
                          .top_k = config.num_experts_per_tok,
                          .intermediate_size = config.moe_intermediate_size,
                          .routing = {.renormalize = true}},
                .load_attention = LoadAttention});
}

}  // namespace tandem
