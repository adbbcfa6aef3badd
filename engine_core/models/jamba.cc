// Jamba: Mamba in the place of attention in most layers, attention without rotation in the others;
// a mixture of experts in the place of some MLPs.
// Source: AI21 2024; HF's JambaForCausalLM.

#include <utility>

#include "engine_core/models/mixed_layer.h"
#include "engine_core/models/moe.h"

namespace tandem {
namespace {

StatusOr<std::unique_ptr<Layer>> LoadLayer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const std::string& prefix = place.prefix;
  auto layer = std::make_unique<MixedLayer>();
  ASSIGN_OR_RETURN(layer->input_norm, LoadRmsNorm(context, prefix + ".input_layernorm"));
  ASSIGN_OR_RETURN(layer->post_attention_norm, LoadRmsNorm(context, prefix + ".pre_ff_layernorm"));
  if (config.recurrent.HasState(place.idx)) {
    ASSIGN_OR_RETURN(layer->mixer, LoadRecurrentLayer(context, prefix + ".mamba"));
  } else {
    ASSIGN_OR_RETURN(layer->mixer, LoadAttention(context, place));
  }
  if (config.IsMixture(place.idx)) {
    const MoeNames names = {.block = "feed_forward", .router = "router"};
    ASSIGN_OR_RETURN(layer->mlp, LoadMoe(context, place, names, MixtureShape(config, {})));
  } else {
    ASSIGN_OR_RETURN(layer->mlp,
                     LoadGatedMlp(context, prefix + ".feed_forward", config.intermediate_size));
  }
  return std::unique_ptr<Layer>(std::move(layer));
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadJamba(const LoadContext& context) {
  DecoderOptions options;
  options.final_norm = "model.final_layernorm";
  if (context.config.num_experts > 1) options.mixture = MixtureShape(context.config, {});
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) { return LoadLayer(context, place); });
}

}  // namespace tandem
