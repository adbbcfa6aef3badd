// Granite 3 with experts, and Granite 4: Mamba-2 in the place of attention in most layers,
// attention without rotation in the others; experts beside a shared MLP, or one of both; Granite's
// multipliers. Granite 3 has attention with rotation in all layers, and experts with or without a
// shared MLP. Source: Granite Team 2024 and 2025; HF's GraniteMoeForCausalLM,
// GraniteMoeSharedForCausalLM and GraniteMoeHybridForCausalLM.

#include <utility>

#include "engine_core/models/granite.h"
#include "engine_core/models/mixed_layer.h"
#include "engine_core/models/moe.h"

namespace tandem {
namespace {

// The router's softmax is over the chosen experts alone: that over all of them, renormalised.
MoeShape ShapeOf(const ModelConfig& config) { return MixtureShape(config, {.renormalize = true}); }

MoeNames Names() {
  MoeNames names = MixtralNames();
  names.router = "router.layer";
  names.shared = "shared_mlp";
  return names;
}

StatusOr<std::unique_ptr<Layer>> LoadLayer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const std::string& prefix = place.prefix;
  auto layer = std::make_unique<MixedLayer>();
  ASSIGN_OR_RETURN(layer->input_norm, LoadRmsNorm(context, prefix + ".input_layernorm"));
  ASSIGN_OR_RETURN(layer->post_attention_norm,
                   LoadRmsNorm(context, prefix + ".post_attention_layernorm"));
  if (config.recurrent.HasState(place.idx)) {
    ASSIGN_OR_RETURN(layer->mixer, LoadRecurrentLayer(context, prefix + ".mamba"));
  } else {
    ASSIGN_OR_RETURN(layer->mixer, LoadGraniteAttention(context, place));
  }
  if (config.IsMixture(place.idx)) {
    ASSIGN_OR_RETURN(layer->mlp,
                     LoadMoe(context, place, Names(), ShapeOf(config), ExpertLayout::kStacked));
  } else {
    const bool is_plain = context.weights.Has(prefix + ".mlp.gate_proj.weight");  // in GGUF files
    ASSIGN_OR_RETURN(layer->mlp,
                     LoadSharedMlp(context, prefix + (is_plain ? ".mlp" : ".shared_mlp"),
                                   config.intermediate_size));
  }
  return std::unique_ptr<Layer>(std::move(layer));
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadGraniteMoeHybrid(const LoadContext& context) {
  DecoderOptions options = GraniteOptions(context.config);
  if (context.config.num_experts > 0) options.mixture = ShapeOf(context.config);
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) { return LoadLayer(context, place); });
}

}  // namespace tandem
