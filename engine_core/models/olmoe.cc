// OLMoE: a mixture in every layer, norms over the whole projections of q and k.
// Source: Muennighoff et al. 2024; HF's OlmoeForCausalLM.

#include "engine_core/models/moe.h"

namespace tandem {

StatusOr<std::unique_ptr<Stage>> LoadOlmoe(const LoadContext& context) {
  const ModelConfig& config = context.config;
  return LoadMoeLike(context,
                     {.names = {},
                      .shape = MixtureShape(config, {.renormalize = config.norm_topk_prob}),
                      .load_attention = LoadProjectionNormedAttention});
}

}  // namespace tandem
