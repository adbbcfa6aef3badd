#include "engine_core/models/draft_head.h"

namespace tandem {

StatusOr<HeadMemory> HeadMemory::Allocate(const LoadContext& context, int64_t state_width) {
  Device& device = context.backend.device();
  const DType act = context.backend.activation_dtype(), res = context.backend.residual_dtype();
  const int64_t tokens = context.limits.max_tokens, rows = context.limits.max_logits_rows;
  const int64_t hidden = context.config.hidden_size;
  HeadMemory memory;
  ASSIGN_OR_RETURN(memory.embedded, device.Allocate(res, {tokens, hidden}));
  ASSIGN_OR_RETURN(memory.own_states, device.Allocate(res, {tokens, hidden}));
  ASSIGN_OR_RETURN(memory.taken, device.Allocate(act, {tokens, state_width}));
  ASSIGN_OR_RETURN(memory.input, device.Allocate(act, {tokens, 2 * hidden}));
  ASSIGN_OR_RETURN(memory.states, device.Allocate(res, {tokens, hidden}));
  ASSIGN_OR_RETURN(memory.last, device.Allocate(res, {rows, hidden}));
  ASSIGN_OR_RETURN(memory.last_act, device.Allocate(act, {rows, hidden}));
  return memory;
}

Tensor HeadMemory::TakeStates(Ops* ops, const HeadStep& step) const {
  const bool is_own = step.states.empty();
  const Tensor out = (is_own ? own_states : taken).view().Rows(0, step.token_ids.rows());
  ops->GatherRows(out, is_own ? states.view() : step.states, step.state_rows);
  return out;
}

}  // namespace tandem
