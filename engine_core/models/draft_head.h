#pragma once

// A head over a target's hidden states that guesses the tokens after the next one: one layer, with
// a cache of its own. The head's position p has the target's token p + 1 and its states of p; on
// its own guesses it goes on from its own states. Thread, ownership: as Model; borrows the target,
// which outlives it. One rank. Shapes: T tokens of a pass, H hidden, V vocabulary, R rows.

#include <span>

#include "kernels/paged_kv.h"
#include "kernels/tensor.h"

namespace tandem {

struct HeadStep {
  Tensor token_ids;  // [T] i32
  // The states of each token are those rows of `states`: the target's ([., state_width] act), or
  // where it is empty, the head's own of the last pass.
  Tensor states;
  Tensor state_rows;  // [T] i32
  const AttentionPlan* plan = nullptr;
  const KvCache* kv_cache = nullptr;
};

class DraftHead {
 public:
  virtual ~DraftHead() = default;
  virtual void Forward(const HeadStep& step) = 0;
  // logits[i, :] = of the pass's token rows[i]; -1e30 for ids that the head does not know.
  // logits: [R, V] f32; rows: [R] i32.
  virtual void Logits(const Tensor& logits, const Tensor& rows) = 0;
  // After how many layers the target's states are taken, side by side; empty: after all of them and
  // the last norm.
  virtual std::span<const int> state_layers() const = 0;
};

}  // namespace tandem
