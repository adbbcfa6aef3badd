// Nemotron-H and Nemotron 3: each layer is one part after one norm: Mamba-2, attention without
// rotation, an MLP without a gate, or a mixture of such MLPs.
// Source: NVIDIA 2025; HF's NemotronHForCausalLM.

#include <utility>
#include <variant>

#include "engine_core/models/moe.h"

namespace tandem {
namespace {

struct NemotronHLayer final : Layer {
  NormLayer norm;
  std::variant<RecurrentLayer, AttentionLayer, MlpLayer, MoeLayer> part;

  void Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const override {
    decoder->Norm(norm);
    if (const auto* recurrent = std::get_if<RecurrentLayer>(&part)) {
      decoder->Recur(*recurrent, kv, plan);
    } else if (const auto* attention = std::get_if<AttentionLayer>(&part)) {
      decoder->Attend(*attention, kv, plan);
    } else if (const auto* mlp = std::get_if<MlpLayer>(&part)) {
      decoder->RunMlp(*mlp);
    } else {
      decoder->RunMixture(std::get<MoeLayer>(part));
    }
  }
};

MoeShape ShapeOf(const ModelConfig& config) {
  MoeShape shape = MixtureShape(config, GroupedSigmoids(config));
  shape.has_gate = false;
  return shape;
}

StatusOr<std::unique_ptr<Layer>> LoadLayer(const LoadContext& context, LayerPlace place) {
  const ModelConfig& config = context.config;
  place.attention = "mixer";
  const std::string mixer = place.prefix + ".mixer";
  auto layer = std::make_unique<NemotronHLayer>();
  ASSIGN_OR_RETURN(layer->norm, LoadRmsNorm(context, place.prefix + ".norm"));
  if (config.recurrent.HasState(place.idx)) {
    ASSIGN_OR_RETURN(layer->part, LoadRecurrentLayer(context, mixer));
  } else if (config.recurrent.HasKv(place.idx)) {
    ASSIGN_OR_RETURN(layer->part, LoadAttention(context, place));
  } else if (config.IsMixture(place.idx)) {
    const MoeNames names = {.block = "mixer",
                            .shared = "shared_experts",
                            .router_bias = "gate.e_score_correction_bias"};
    ASSIGN_OR_RETURN(layer->part, LoadMoe(context, place, names, ShapeOf(config)));
  } else {
    ASSIGN_OR_RETURN(layer->part, LoadPlainMlp(context, mixer + ".up_proj", mixer + ".down_proj",
                                               /*has_bias=*/false));
  }
  return std::unique_ptr<Layer>(std::move(layer));
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadNemotronH(const LoadContext& context) {
  DecoderOptions options;
  options.embedding = "backbone.embeddings";
  options.layers = "backbone.layers";
  options.final_norm = "backbone.norm_f";
  if (context.config.num_experts > 0) options.mixture = ShapeOf(context.config);
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) { return LoadLayer(context, place); });
}

}  // namespace tandem
