// Mamba-2: each layer is a norm and a scan.
// Source: Dao and Gu 2024; HF's Mamba2ForCausalLM.

#include <utility>

#include "engine_core/models/stage.h"

namespace tandem {
namespace {

struct Mamba2Layer final : Layer {
  NormLayer norm;
  RecurrentLayer mixer;

  void Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const override {
    decoder->Norm(norm);
    decoder->Recur(mixer, kv, plan);
  }
};

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadMamba2(const LoadContext& context) {
  DecoderOptions options;
  options.embedding = "backbone.embeddings";
  options.layers = "backbone.layers";
  options.final_norm = "backbone.norm_f";
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) -> StatusOr<std::unique_ptr<Layer>> {
                       auto layer = std::make_unique<Mamba2Layer>();
                       ASSIGN_OR_RETURN(layer->norm, LoadRmsNorm(context, place.prefix + ".norm"));
                       ASSIGN_OR_RETURN(layer->mixer,
                                        LoadRecurrentLayer(context, place.prefix + ".mixer"));
                       return std::unique_ptr<Layer>(std::move(layer));
                     });
}

}  // namespace tandem
