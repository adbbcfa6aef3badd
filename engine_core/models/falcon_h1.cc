// Falcon-H1: attention and Mamba-2 side by side after one norm, then an MLP; multipliers of what
// goes into each part and of what comes out.
// Source: TII 2025; HF's FalconH1ForCausalLM.

#include <utility>

#include "engine_core/models/stage.h"

namespace tandem {
namespace {

struct FalconH1Layer final : Layer {
  NormLayer input_norm;
  AttentionLayer attention;
  RecurrentLayer recurrent;
  NormLayer mlp_norm;
  MlpLayer mlp;

  // Both projections read the residual before either part is added to it.
  void Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const override {
    decoder->Norm(input_norm);
    decoder->ProjectQkv(attention);
    decoder->ProjectRecurrent(recurrent);
    decoder->AttendProjected(attention, kv, plan);
    decoder->RecurProjected(recurrent, kv, plan);
    decoder->Norm(mlp_norm);
    decoder->RunMlp(mlp);
  }
};

// q, k and v are kept without their multipliers: those of q and k are in the scale of the scores,
// that of v in what the heads compute.
StatusOr<AttentionLayer> LoadScaledAttention(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const double in = config.attention_in_multiplier;
  ASSIGN_OR_RETURN(AttentionLayer layer, LoadAttention(context, place));
  layer.options.scale *= static_cast<float>(in * in * config.key_multiplier);
  layer.out_scale = static_cast<float>(in * config.attention_out_multiplier);
  return layer;
}

StatusOr<std::unique_ptr<Layer>> LoadLayer(const LoadContext& context, const LayerPlace& place) {
  const std::string& prefix = place.prefix;
  auto layer = std::make_unique<FalconH1Layer>();
  ASSIGN_OR_RETURN(layer->input_norm, LoadRmsNorm(context, prefix + ".input_layernorm"));
  ASSIGN_OR_RETURN(layer->attention, LoadScaledAttention(context, place));
  ASSIGN_OR_RETURN(layer->recurrent, LoadRecurrentLayer(context, prefix + ".mamba"));
  ASSIGN_OR_RETURN(layer->mlp_norm, LoadRmsNorm(context, prefix + ".pre_ff_layernorm"));
  ASSIGN_OR_RETURN(layer->mlp, LoadGatedMlp(context, prefix + ".feed_forward",
                                            context.config.intermediate_size));
  return std::unique_ptr<Layer>(std::move(layer));
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadFalconH1(const LoadContext& context) {
  DecoderOptions options;
  options.final_norm = "model.final_layernorm";
  options.embedding_scale = static_cast<float>(context.config.embedding_multiplier);
  options.logits_scale = static_cast<float>(context.config.logit_scale);
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) { return LoadLayer(context, place); });
}

}  // namespace tandem
