#pragma once

// A decoder-only language model over a Backend, or a rank's part of one: a sequence of stages, each
// a run of its layers. Mostly there is one stage: the whole model, or the rank's.
// Ranks that share a stage call the same functions with the same step.
// Thread: engine loop. Owns: packed weights and the activations, both allocated when it is loaded;
// borrows the backend, which outlives it. Forward and Logits allocate nothing and wait for nothing
// that a device computes, so both can be captured (Device::BeginCapture).
// Shapes: T tokens of a step (at most ModelLimits::max_tokens), V vocabulary.

#include <memory>
#include <vector>

#include "engine_core/models/stage.h"

namespace tandem {

class Model {
 public:
  // In their order; at least one.
  explicit Model(std::vector<std::unique_ptr<Stage>> stages);

  // Runs all layers for the step's tokens, writes their keys and values to the cache and keeps the
  // last hidden states until the next call.
  void Forward(const ModelStep& step);
  // logits[i, :] = the logits of the step's token rows[i].  logits: [R, V] f32; rows: [R] i32.
  // Only the first share gets them, and others give an empty tensor.  REQUIRES: the last stage.
  void Logits(const Tensor& logits, const Tensor& rows);
  // States, which drafts of Forward have left as they were, take in some of them, as if these had
  // been no drafts; the layers' outputs are not computed again. Before the next Forward of that
  // turn, once the step's plans describe these tokens.  drafts: [T] i32, which of the step's drafts
  // each of them is; turn: ModelStep's.
  void TakeInDrafts(const Tensor& drafts, int turn);

  // ---- for heads that draft; tables: of one rank, states: of ranks in shared memory too ----
  // out = the last hidden states of Forward after the final norm.  out: [T, H] act.
  void NormStates(const Tensor& out) { stages_.back()->decoder().NormStates(out); }
  const PackedMatrix& embedding_table() const {
    return stages_.front()->decoder().embedding_table();
  }
  const PackedMatrix& head() const { return stages_.back()->decoder().head(); }

 private:
  std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace tandem
