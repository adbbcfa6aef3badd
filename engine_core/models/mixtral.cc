// Mixtral: Mistral's layer with a mixture of experts for each MLP.
// Source: Jiang et al. 2024; HF's MixtralForCausalLM.

#include "engine_core/models/moe.h"

namespace tandem {

StatusOr<std::unique_ptr<Stage>> LoadMixtral(const LoadContext& context) {
  const ModelConfig& config = context.config;
  return LoadMoeLike(context, {.names = MixtralNames(),
                               .shape = MixtureShape(config, {.renormalize = true}),
                               .load_attention = LoadAttention});
}

}  // namespace tandem
