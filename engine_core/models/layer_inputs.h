#pragma once

// What a token brings to each layer besides the hidden state (Gemma 4, and first Gemma 3n): from a
// table of its own and from the token's embedding x, for layer l
//   (table[id]_l sqrt(I) + norm((P x)_l / sqrt(H))) / sqrt(2)
// which the layer multiplies with a gate made of its hidden state (Decoder::AddInput).
// Thread: engine loop. Owns: the table, the projection, and the buffers of a step.
// Shapes: T tokens, H hidden, L layers, I numbers per layer. One rank.

#include "engine_core/models/layers.h"

namespace tandem {

// A layer's part of it.
struct InputLayer {
  LinearLayer gate;        // [I, H]
  LinearLayer projection;  // [H, I]
  NormLayer post_norm;
};

StatusOr<InputLayer> LoadInputLayer(const LoadContext& context, const LayerPlace& place);

class LayerInputs {
 public:
  static StatusOr<LayerInputs> Load(const LoadContext& context);

  // Of all layers, for the step's tokens.  ids: [T] i32; embedded: [T, H] act.
  void Fill(const Tensor& ids, const Tensor& embedded);
  // Room for what a layer's gate makes of a step.  [T, I] act.
  Tensor Gate(int64_t num_tokens) const { return gate_.view().Rows(0, num_tokens); }
  // gelu(gate) times the layer's input, in the room of Gate.
  Tensor Gated(const Tensor& gate, int64_t layer_idx);

 private:
  explicit LayerInputs(const LoadContext& context);

  Ops* ops_;
  int64_t num_layers_, size_;  // L, I
  float norm_epsilon_;         // of the norm before the division by sqrt(H)
  LinearLayer table_;          // [V, L I]
  LinearLayer projection_;     // [L I, H]
  OwnedTensor norm_;           // [I], over sqrt(2)
  OwnedTensor sums_;           // [T, L I] res
  OwnedTensor inputs_;         // [T, L I] act
  OwnedTensor gate_;           // [T, I] act
};

}  // namespace tandem
