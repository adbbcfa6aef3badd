#pragma once

// A mixture of experts:
//   residual += sum over the chosen experts e, in ascending order of id, of weight_e *
//   mlp_e(normed)
// Router: a linear layer, Ops::RouteTopK on its float32 output. A token's result depends on that
// token alone.
// Thread: engine loop. Owns: the buffers of a step, which all mixtures of a stage share, allocated
// when the model is loaded.
// Shapes: T tokens, H hidden, E experts, K of them per token, I the experts' inner size (of
// this rank).

#include <memory>

#include "engine_core/models/layers.h"

namespace tandem {

struct MoeShape {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;
  bool renormalize = false;  // scale the chosen experts' weights to sum to 1
};

struct MoeLayer {
  LinearLayer router;                      // [E, H]
  std::unique_ptr<PackedExperts> gate_up;  // [2 I, H] each
  std::unique_ptr<PackedExperts> down;     // [H, I] each
};

class ExpertMixer {
 public:
  static StatusOr<ExpertMixer> Create(const LoadContext& context, const MoeShape& shape);

  // residual += the mixture of normed.  residual: [T, H] res; normed: [T, H] act.
  void Run(const MoeLayer& layer, const Tensor& residual, const Tensor& normed);

 private:
  ExpertMixer(Ops* ops, const MoeShape& shape) : ops_(ops), shape_(shape) {}
  // The pairs of a step of num_tokens.
  ExpertPairs Pairs(int64_t num_tokens) const;

  Ops* ops_;
  MoeShape shape_;
  OwnedTensor logits_;   // [T, E] f32
  OwnedTensor ids_;      // [T, K] i32
  OwnedTensor weights_;  // [T, K] f32
  // The parts of ExpertPairs.
  OwnedTensor pair_begin_, chosen_experts_, pair_tokens_, pairs_of_token_, pair_weights_;
  OwnedTensor rows_;       // [T * K, H] act: what goes into the experts, then what comes out
  OwnedTensor activated_;  // [T * K, I] act
};

}  // namespace tandem
