#pragma once

// A head over a target's hidden states that guesses the tokens after the next one: one layer, with
// a cache of its own. The head's position p has the target's token p + 1 and its states of p; on
// its own guesses it goes on from its own states. Thread, ownership: as Model; borrows the target's
// tables, which outlive it. One rank. Shapes: T tokens of a pass, H hidden, V vocabulary, R rows.

#include <span>

#include "common/status.h"
#include "engine_core/models/load_context.h"
#include "kernels/ops.h"
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

// What a head keeps between its passes, and room for one. R: max_logits_rows.
struct HeadMemory {
  // state_width: columns of the target's states.
  static StatusOr<HeadMemory> Allocate(const LoadContext& context, int64_t state_width);

  // The states that the step's tokens take: `taken` or, of the head's own, `own_states`.
  Tensor TakeStates(Ops* ops, const HeadStep& step) const;

  OwnedTensor embedded;    // [T, H] res
  OwnedTensor own_states;  // [T, H] res, the rows that a pass takes of the last one
  OwnedTensor taken;       // [T, state_width] act
  OwnedTensor input;       // [T, 2 H] act
  OwnedTensor states;      // [T, H] res: of the layer, until the next pass
  OwnedTensor last;        // [R, H] res
  OwnedTensor last_act;    // [R, H] act
};

}  // namespace tandem
