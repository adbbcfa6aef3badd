// DeepSeek's family: latent attention, and in most layers a mixture of experts, of which one part
// is chosen by groups and the other, the shared expert, is every token's. Sources: DeepSeek-AI 2024
// (DeepSeek-V2, DeepSeek-V3); HF's DeepseekV2ForCausalLM, DeepseekV3ForCausalLM and
// Glm4MoeLiteForCausalLM.

#include <optional>
#include <utility>

#include "engine_core/models/llama.h"
#include "engine_core/models/moe.h"

namespace tandem {
namespace {

struct DeepseekLayer final : Layer {
  NormLayer input_norm;
  std::optional<RecurrentLayer> recurrent;  // else attention
  LatentLayer attention;
  NormLayer post_attention_norm;
  std::optional<MlpLayer> mlp;  // else moe
  MoeLayer moe;

  void Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const override {
    decoder->Norm(input_norm);
    if (recurrent) {
      decoder->Recur(*recurrent, kv, plan);
    } else {
      decoder->AttendLatent(attention, kv, plan);
    }
    decoder->Norm(post_attention_norm);
    if (mlp) {
      decoder->RunMlp(*mlp);
    } else {
      decoder->RunMixture(moe);
    }
  }
};

StatusOr<std::unique_ptr<Stage>> LoadDeepseek(const LoadContext& context, const MoeNames& names,
                                              const RouteOptions& routing) {
  const ModelConfig& config = context.config;
  if (config.attention_bias) {
    return UnimplementedError("attention_bias of " + config.architecture + " must be false");
  }
  const MoeShape shape = {.num_experts = config.num_experts,
                          .top_k = config.num_experts_per_tok,
                          .intermediate_size = config.moe_intermediate_size,
                          .routing = routing,
                          .shared_intermediate_size = config.shared_intermediate_size};
  DecoderOptions options;
  if (config.num_experts > 0) options.mixture = shape;
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) -> StatusOr<std::unique_ptr<Layer>> {
                       auto layer = std::make_unique<DeepseekLayer>();
                       ASSIGN_OR_RETURN(layer->input_norm,
                                        LoadRmsNorm(context, place.prefix + ".input_layernorm"));
                       if (config.recurrent.HasState(place.idx)) {
                         ASSIGN_OR_RETURN(layer->recurrent,
                                          LoadRecurrentLayer(context, place.prefix + ".self_attn"));
                       } else {
                         ASSIGN_OR_RETURN(layer->attention, LoadLatentLayer(context, place));
                       }
                       ASSIGN_OR_RETURN(
                           layer->post_attention_norm,
                           LoadRmsNorm(context, place.prefix + ".post_attention_layernorm"));
                       if (config.IsMixture(place.idx)) {
                         ASSIGN_OR_RETURN(layer->moe, LoadMoe(context, place, names, shape));
                       } else {
                         ASSIGN_OR_RETURN(layer->mlp, LoadGatedMlp(context, place));
                       }
                       return std::unique_ptr<Layer>(std::move(layer));
                     });
}

MoeNames DeepseekNames() {
  return {.block = "mlp",
          .gate = "gate_proj",
          .up = "up_proj",
          .down = "down_proj",
          .shared = "shared_experts"};
}

// The groups of the config.
RouteOptions DeepseekRouting(const ModelConfig& config) {
  return {.renormalize = config.norm_topk_prob,
          .scale = static_cast<float>(config.routed_scaling_factor),
          .num_groups = static_cast<int>(config.num_expert_groups),
          .top_groups = static_cast<int>(config.num_chosen_groups)};
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadDeepseekV2(const LoadContext& context) {
  const std::string& method = context.config.topk_method;
  RouteOptions routing = DeepseekRouting(context.config);
  if (method == "greedy") {
    routing.num_groups = routing.top_groups = 1;
  } else if (method != "group_limited_greedy") {
    return InvalidArgumentError("topk_method " + method +
                                " of DeepseekV2ForCausalLM must be greedy or group_limited_greedy");
  }
  return LoadDeepseek(context, DeepseekNames(), routing);
}

StatusOr<std::unique_ptr<Stage>> LoadDeepseekV3(const LoadContext& context) {
  MoeNames names = DeepseekNames();
  names.router_bias = "gate.e_score_correction_bias";
  RouteOptions routing = DeepseekRouting(context.config);
  routing.score = RouterScore::kSigmoid;
  routing.group_best = routing.num_groups > 1 ? 2 : 1;
  return LoadDeepseek(context, names, routing);
}

StatusOr<std::unique_ptr<Stage>> LoadKimiLinear(const LoadContext& context) {
  const MoeNames names = {.block = "block_sparse_moe",
                          .gate = "w1",
                          .up = "w3",
                          .down = "w2",
                          .shared = "shared_experts",
                          .router_bias = "gate.e_score_correction_bias"};
  RouteOptions routing = DeepseekRouting(context.config);
  routing.score = RouterScore::kSigmoid;
  routing.group_best = routing.num_groups > 1 ? 2 : 1;
  return LoadDeepseek(context, names, routing);
}

}  // namespace tandem
