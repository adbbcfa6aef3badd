// Mixtral: Mistral's layer with a mixture of experts for each MLP.
// Source: Jiang et al. 2024; HF's MixtralForCausalLM.

#include "engine_core/models/moe.h"
#include "engine_core/models/registry.h"

namespace tandem {

StatusOr<std::unique_ptr<Model>> LoadMixtral(const LoadContext& context) {
  const ModelConfig& config = context.config;
  const MoeNames names = {.block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"};
  const MoeShape shape = {.num_experts = config.num_experts,
                          .top_k = config.num_experts_per_tok,
                          .intermediate_size = config.intermediate_size,
                          .renormalize = true};
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Load(context));
  ASSIGN_OR_RETURN(ExpertMixer mixer, ExpertMixer::Create(context, shape));
  std::vector<MoeDecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i);
    MoeDecoderLayer& layer = layers.emplace_back();
    RETURN_IF_ERROR(LoadLlamaNorms(context, prefix, &layer.dense));
    ASSIGN_OR_RETURN(layer.dense.attention, LoadAttention(context, prefix + ".self_attn"));
    layer.dense.attention.options.sliding_window = config.WindowOf(i);
    ASSIGN_OR_RETURN(layer.moe, LoadMoe(context, prefix, names, shape));
  }
  return MakeMoeModel(std::move(decoder), std::move(mixer), std::move(layers));
}

}  // namespace tandem
