#pragma once

// What a token brings to each layer besides the hidden state (Gemma 4, and first Gemma 3n): from a
// table of its own and from the token's embedding x, for layer l
//   (table[id]_l sqrt(I) + norm((P x)_l / sqrt(H))) / sqrt(2)
// which the layer multiplies with a gate made of its hidden state (Decoder::AddInput).
// The first stage makes them for all layers, where the embeddings are. Of its ranks each has the
// rows of the table that it has of the embedding's, and the rows of P of some layers, whose norms
// it computes. The sums are in memory that the ranks of all stages see. Thread: engine loop. Owns:
// the table, the projection, and the buffers of a step. Shapes: T tokens, H hidden, L layers of the
// model, I numbers per layer; "own" sizes are the rank's.

#include "engine_core/models/layers.h"

namespace tandem {

// A layer's part of it.
struct InputLayer {
  LinearLayer gate;        // [own I, H]
  LinearLayer projection;  // [own H, I]
  NormLayer post_norm;
};

StatusOr<InputLayer> LoadInputLayer(const LoadContext& context, const LayerPlace& place);

class LayerInputs {
 public:
  static StatusOr<LayerInputs> Load(const LoadContext& context);

  // Before a step. room: where the sums are, [T, L I] res; empty: in memory of its own.
  void Begin(const Tensor& room) { room_ = room; }
  // At the first stage, in this order: the rows of the table for some of the step's T tokens, those
  // from `begin` on, until all ranks have those of all; what the embeddings add, [T, H] act.
  // ids: i32, of the rank's part of the vocabulary.
  void Embed(int64_t begin, const Tensor& ids, int64_t num_tokens);
  void AddProjected(const Tensor& embedded);
  // The sums, once all ranks have added theirs.  [T, L I] res.
  Tensor All(int64_t num_tokens) const {
    return room_.empty() ? sums_.view().Rows(0, num_tokens) : room_;
  }

  // Room for what a layer's gate makes of a step, and all ranks see.  [T, I] act.
  Tensor Gated(int64_t num_tokens) const { return gated_.view().Rows(0, num_tokens); }
  // gate = gelu(gate) times the layer's input, in the rank's columns.  [T, own I] act.
  void Gate(const Tensor& gate, int64_t layer_idx);

 private:
  explicit LayerInputs(const LoadContext& context);
  Status LoadTables(const LoadContext& context);

  Ops* ops_;
  int64_t num_layers_, size_;  // L, I
  Slice layers_;               // whose rows of P the rank has
  Slice columns_;              // of I
  float norm_epsilon_;         // of the norm before the division by sqrt(H)
  // Of the first stage.
  LinearLayer table_;       // [own V, L I]
  LinearLayer projection_;  // [own L I, H]; null: the rank has no layer
  OwnedTensor norm_;        // [I], over sqrt(2)
  OwnedTensor sums_;        // [T, L I] res
  OwnedTensor projected_;   // [T, own L I] act

  OwnedTensor gated_;  // [T, I] act, shared
  OwnedTensor input_;  // [T, own I] act, of one layer
  Tensor room_;        // of this step
};

}  // namespace tandem
