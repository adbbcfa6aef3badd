#pragma once

// Layers whose attention and MLP read the same hidden states:
//   x += attention(norm(x)) + mlp(norm'(x))
// Thread, ownership: as Model. Source: Wang and Komatsuzaki 2021 (GPT-J).

#include <memory>

#include "engine_core/models/stage.h"

namespace tandem {

struct ParallelLayer final : Layer {
  NormLayer norm;      // a LayerNorm
  NormLayer mlp_norm;  // likewise; empty: the same
  AttentionLayer attention;
  MlpLayer mlp;

  void Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const override;
};

// A stage of such layers.
using ParallelLayerLoader = StatusOr<ParallelLayer> (*)(const LoadContext&, const LayerPlace&);
StatusOr<std::unique_ptr<Stage>> LoadParallelLike(const LoadContext& context,
                                                  DecoderOptions options,
                                                  ParallelLayerLoader load_layer);

}  // namespace tandem
