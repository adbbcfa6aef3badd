// The ops of layers with a state: one run after another.

#include "kernels/cpu/kernel_table.h"
#include "kernels/recurrence.h"
#include "kernels/reference/reference_ops.h"

namespace tandem {
namespace {

const StateKernels& Loops() { return ScalarKernels().state; }

}  // namespace

void ReferenceOps::DoConvolve(const Tensor& out, const Tensor& x, const ConvOptions& options,
                              const StatePart& state, const AttentionPlan& plan) {
  for (const BatchSequence& sequence : plan.sequences()) {
    const StateRun run = RunOf(sequence, state.kv, state.offset);
    for (int64_t c = 0; c < x.shape[1]; ++c) ConvolveRun(Loops(), out, x, options, run, c, 1);
  }
}

void ReferenceOps::DoDeltaRule(const Tensor& out, const Tensor& qkv, const Tensor& gates,
                               const DeltaOptions& options, const StatePart& state,
                               const AttentionPlan& plan) {
  for (const BatchSequence& sequence : plan.sequences()) {
    const StateRun run = RunOf(sequence, state.kv, state.offset);
    for (int64_t h = 0; h < options.num_value_heads; ++h) {
      DeltaRun(Loops(), out, qkv, gates, options, run, h);
    }
  }
}

void ReferenceOps::DoStateScan(const Tensor& out, const Tensor& xbc, const Tensor& dt,
                               const ScanOptions& options, const StatePart& state,
                               const AttentionPlan& plan) {
  for (const BatchSequence& sequence : plan.sequences()) {
    const StateRun run = RunOf(sequence, state.kv, state.offset);
    for (int64_t h = 0; h < options.num_heads; ++h) ScanRun(Loops(), out, xbc, dt, options, run, h);
  }
}

void ReferenceOps::DoSelectiveScan(const Tensor& out, const Tensor& x, const Tensor& dt,
                                   const Tensor& bc, const SelectiveOptions& options,
                                   const StatePart& state, const AttentionPlan& plan) {
  for (const BatchSequence& sequence : plan.sequences()) {
    const StateRun run = RunOf(sequence, state.kv, state.offset);
    for (int64_t c = 0; c < x.shape[1]; ++c) SelectRun(Loops(), out, x, dt, bc, options, run, c, 1);
  }
}

void ReferenceOps::DoGatedNorm(const Tensor& out, const Tensor& x, const Tensor& gate,
                               const GatedNormOptions& options) {
  for (int64_t t = 0; t < x.rows(); ++t) GateNormRow(Loops(), out, x, gate, options, t);
}

void ReferenceOps::DoGateBySigmoid(const Tensor& x, const Tensor& gate) {
  for (int64_t t = 0; t < x.rows(); ++t) GateRow(Loops(), x, gate, t);
}

void ReferenceOps::DoMultiplyBy(const Tensor& x, const Tensor& y) {
  for (int64_t t = 0; t < x.rows(); ++t) MultiplyRow(Loops(), x, y, t);
}

}  // namespace tandem
