// Qwen3-MoE: Qwen3's attention, and a mixture of experts for the MLP in the layers that
// decoder_sparse_step and mlp_only_layers leave to one.
// Source: Yang et al. 2025; HF's Qwen3MoeForCausalLM.

#include <algorithm>

#include "engine_core/models/moe.h"
#include "engine_core/models/registry.h"

namespace tandem {
namespace {

bool IsMixture(const ModelConfig& config, int64_t layer) {
  const auto& dense = config.mlp_only_layers;
  return std::find(dense.begin(), dense.end(), layer) == dense.end() &&
         (layer + 1) % config.decoder_sparse_step == 0;
}

}  // namespace

StatusOr<std::unique_ptr<Model>> LoadQwen3Moe(const LoadContext& context) {
  const ModelConfig& config = context.config;
  return LoadMoeLike(
      context,
      {.names = {.block = "mlp", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"},
       .shape = {.num_experts = config.num_experts,
                 .top_k = config.num_experts_per_tok,
                 .intermediate_size = config.moe_intermediate_size,
                 .renormalize = config.norm_topk_prob},
       .load_attention = LoadQwen3Attention,
       .is_mixture = IsMixture});
}

}  // namespace tandem
