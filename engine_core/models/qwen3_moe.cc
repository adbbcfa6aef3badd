// Qwen3-MoE: Qwen3's attention, and a mixture of experts for the MLP in the layers that the config
// chooses.
// Qwen3-VL-MoE's text model is the same, with experts that are stored the other way round.
// Source: Yang et al. 2025; HF's Qwen3MoeForCausalLM and Qwen3VLMoeForConditionalGeneration.

#include "engine_core/models/moe.h"
#include "engine_core/models/qwen3.h"

namespace tandem {

namespace {

StatusOr<std::unique_ptr<Stage>> LoadWithLayout(const LoadContext& context, ExpertLayout layout) {
  const ModelConfig& config = context.config;
  return LoadMoeLike(context,
                     {.names = {},
                      .shape = MixtureShape(config, {.renormalize = config.norm_topk_prob}),
                      .load_attention = LoadQwen3Attention,
                      .layout = layout});
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadQwen3Moe(const LoadContext& context) {
  return LoadWithLayout(context, ExpertLayout::kNamed);
}

// Quantized, its experts are mostly stored one by one.
StatusOr<std::unique_ptr<Stage>> LoadQwen3VlMoe(const LoadContext& context) {
  for (int64_t i = 0; i < context.config.num_layers; ++i) {
    if (!context.config.IsMixture(i)) continue;
    const std::string stack = "model.layers." + std::to_string(i) + ".mlp.experts.gate_up_proj";
    if (context.weights.Has(stack)) return LoadWithLayout(context, ExpertLayout::kTransposedHalves);
  }
  return LoadWithLayout(context, ExpertLayout::kNamed);
}

}  // namespace tandem
