// Phi-3.5-MoE: LayerNorms, biases of attention and head, and in every layer a mixture of two
// experts that are chosen one after the other.
// Source: Abdin et al. 2024; HF's PhimoeForCausalLM.

#include "engine_core/models/moe.h"

namespace tandem {

StatusOr<std::unique_ptr<Stage>> LoadPhiMoe(const LoadContext& context) {
  const ModelConfig& config = context.config;
  if (config.num_experts_per_tok != 2) {
    return InvalidArgumentError("num_experts_per_tok of " + config.architecture + " must be 2");
  }
  DecoderOptions options;
  options.has_layer_norm = true;
  options.has_head_bias = config.lm_head_bias;
  return LoadMoeLike(
      context, {.names = MixtralNames(),
                .shape = {.num_experts = config.num_experts,
                          .top_k = 2,
                          .intermediate_size = config.moe_intermediate_size,
                          .routing = {.score = RouterScore::kSparseMixer,
                                      .jitter = static_cast<float>(config.router_jitter_noise)}},
                .load_attention = LoadAttention,
                .options = std::move(options)});
}

}  // namespace tandem
