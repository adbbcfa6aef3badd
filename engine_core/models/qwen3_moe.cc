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
  const MoeNames names = {
      .block = "mlp", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"};
  const MoeShape shape = {.num_experts = config.num_experts,
                          .top_k = config.num_experts_per_tok,
                          .intermediate_size = config.moe_intermediate_size,
                          .renormalize = config.norm_topk_prob};
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Load(context));
  ASSIGN_OR_RETURN(ExpertMixer mixer, ExpertMixer::Create(context, shape));
  std::vector<MoeDecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i);
    MoeDecoderLayer& layer = layers.emplace_back();
    RETURN_IF_ERROR(LoadLlamaNorms(context, prefix, &layer.dense));
    ASSIGN_OR_RETURN(layer.dense.attention, LoadQwen3Attention(context, prefix + ".self_attn"));
    layer.dense.attention.options.sliding_window = config.WindowOf(i);
    if (IsMixture(config, i)) {
      ASSIGN_OR_RETURN(layer.moe, LoadMoe(context, prefix, names, shape));
    } else {
      ASSIGN_OR_RETURN(layer.dense.mlp, LoadGatedMlp(context, prefix + ".mlp"));
    }
  }
  return MakeMoeModel(std::move(decoder), std::move(mixer), std::move(layers));
}

}  // namespace tandem
