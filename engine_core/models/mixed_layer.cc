#include "engine_core/models/mixed_layer.h"

namespace tandem {

void MixedLayer::Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const {
  decoder->Norm(input_norm);
  if (const auto* attention = std::get_if<AttentionLayer>(&mixer)) {
    decoder->Attend(*attention, kv, plan);
  } else if (const auto* latent = std::get_if<LatentLayer>(&mixer)) {
    decoder->AttendLatent(*latent, kv, plan);
  } else {
    decoder->Recur(std::get<RecurrentLayer>(mixer), kv, plan);
  }
  decoder->Norm(post_attention_norm);
  if (const auto* dense = std::get_if<MlpLayer>(&mlp)) {
    decoder->RunMlp(*dense);
  } else {
    decoder->RunMixture(std::get<MoeLayer>(mlp));
  }
}

}  // namespace tandem
