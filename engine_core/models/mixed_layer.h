#pragma once

// The layer of models whose layers differ in kind: x += mixer(norm(x)); x += mlp(norm(x)), with
// attention, latent attention or a recurrence, and an MLP or a mixture of experts.
// Thread, ownership: as Model.

#include <variant>

#include "engine_core/models/stage.h"

namespace tandem {

struct MixedLayer final : Layer {
  NormLayer input_norm;
  std::variant<AttentionLayer, LatentLayer, RecurrentLayer> mixer;
  NormLayer post_attention_norm;
  std::variant<MlpLayer, MoeLayer> mlp;

  void Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const override;
};

}  // namespace tandem
