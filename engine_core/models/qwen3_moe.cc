// Qwen3-MoE: Qwen3's attention, and a mixture of experts for the MLP in the layers that the config
// chooses.
// Source: Yang et al. 2025; HF's Qwen3MoeForCausalLM.

#include "engine_core/models/moe.h"
#include "engine_core/models/qwen3.h"

namespace tandem {

StatusOr<std::unique_ptr<Stage>> LoadQwen3Moe(const LoadContext& context) {
  const ModelConfig& config = context.config;
  return LoadMoeLike(context,
                     {.names = {},
                      .shape = MixtureShape(config, {.renormalize = config.norm_topk_prob}),
                      .load_attention = LoadQwen3Attention});
}

}  // namespace tandem
