// DeepSeek's family: latent attention, and in most layers a mixture of experts, of which one part
// is chosen by groups and the other, the shared expert, is every token's. Sources: DeepSeek-AI 2024
// (DeepSeek-V2, DeepSeek-V3); HF's DeepseekV2ForCausalLM, DeepseekV3ForCausalLM and
// Glm4MoeLiteForCausalLM.

#include <utility>

#include "engine_core/models/mixed_layer.h"
#include "engine_core/models/moe.h"

namespace tandem {
namespace {

constexpr char kSharedExperts[] = "shared_experts";
constexpr char kRouterBias[] = "gate.e_score_correction_bias";

StatusOr<std::unique_ptr<Stage>> LoadDeepseek(const LoadContext& context, const MoeNames& names,
                                              const RouteOptions& routing) {
  const ModelConfig& config = context.config;
  if (config.attention_bias) {
    return UnimplementedError("attention_bias of " + config.architecture + " must be false");
  }
  const MoeShape shape = MixtureShape(config, routing);
  DecoderOptions options;
  if (config.num_experts > 0) options.mixture = shape;
  return Stage::Load(
      context, std::move(options),
      [&](const LayerPlace& place) -> StatusOr<std::unique_ptr<Layer>> {
        auto layer = std::make_unique<MixedLayer>();
        ASSIGN_OR_RETURN(layer->input_norm,
                         LoadRmsNorm(context, place.prefix + ".input_layernorm"));
        if (config.recurrent.HasState(place.idx)) {
          ASSIGN_OR_RETURN(layer->mixer, LoadRecurrentLayer(context, place.prefix + ".self_attn"));
        } else {
          ASSIGN_OR_RETURN(layer->mixer, LoadLatentLayer(context, place));
        }
        ASSIGN_OR_RETURN(layer->post_attention_norm,
                         LoadRmsNorm(context, place.prefix + ".post_attention_layernorm"));
        if (config.IsMixture(place.idx)) {
          ASSIGN_OR_RETURN(layer->mlp, LoadMoe(context, place, names, shape));
        } else {
          ASSIGN_OR_RETURN(layer->mlp, LoadGatedMlp(context, place));
        }
        return std::unique_ptr<Layer>(std::move(layer));
      });
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadDeepseekV2(const LoadContext& context) {
  const ModelConfig& config = context.config;
  RouteOptions routing = {.renormalize = config.norm_topk_prob,
                          .scale = static_cast<float>(config.routed_scaling_factor)};
  if (config.topk_method == "group_limited_greedy") {
    routing.num_groups = static_cast<int>(config.num_expert_groups);
    routing.top_groups = static_cast<int>(config.num_chosen_groups);
  } else if (config.topk_method != "greedy") {
    return InvalidArgumentError("topk_method " + config.topk_method +
                                " of DeepseekV2ForCausalLM must be greedy or group_limited_greedy");
  }
  return LoadDeepseek(context, {.shared = kSharedExperts}, routing);
}

StatusOr<std::unique_ptr<Stage>> LoadDeepseekV3(const LoadContext& context) {
  return LoadDeepseek(context, {.shared = kSharedExperts, .router_bias = kRouterBias},
                      GroupedSigmoids(context.config));
}

StatusOr<std::unique_ptr<Stage>> LoadKimiLinear(const LoadContext& context) {
  MoeNames names = MixtralNames();
  names.shared = kSharedExperts;
  names.router_bias = kRouterBias;
  return LoadDeepseek(context, names, GroupedSigmoids(context.config));
}

}  // namespace tandem
