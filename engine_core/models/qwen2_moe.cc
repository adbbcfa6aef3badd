// Qwen1.5-MoE and Qwen2-MoE: Qwen2's attention, and in the layers that the config chooses a mixture
// with a gated shared expert.
// Source: Yang et al. 2024; HF's Qwen2MoeForCausalLM.

#include "engine_core/models/moe.h"

namespace tandem {
namespace {

StatusOr<AttentionLayer> LoadQwen2MoeAttention(const LoadContext& context,
                                               const LayerPlace& place) {
  return LoadAttention(context, place, {.qkv = context.config.attention_bias});
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadQwen2Moe(const LoadContext& context) {
  const ModelConfig& config = context.config;
  return LoadMoeLike(context,
                     {.names = {.shared = "shared_expert", .shared_gate = "shared_expert_gate"},
                      .shape = MixtureShape(config, {.renormalize = config.norm_topk_prob}),
                      .load_attention = LoadQwen2MoeAttention});
}

}  // namespace tandem
