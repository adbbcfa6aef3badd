// The ops of layers with a state: a thread takes one sequence's head, or some of its channels. The
// tokens of a sequence come one after another, so a single prompt is work for as many threads as
// there are heads.

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/recurrence.h"

namespace tandem {
namespace {

constexpr int64_t kChannels = 64;  // of a piece of work

// Of all sequences, on average.
int64_t TokensPerSequence(const AttentionPlan& plan) {
  const auto num_sequences = std::max<int64_t>(1, std::ssize(plan.sequences()));
  return (plan.num_tokens() + num_sequences - 1) / num_sequences;
}

}  // namespace

void CpuOps::DoConvolve(const Tensor& out, const Tensor& x, const ConvOptions& options,
                        const StatePart& state, const AttentionPlan& plan) {
  const int64_t channels = x.shape[1], parts = (channels + kChannels - 1) / kChannels;
  ForEach(std::ssize(plan.sequences()) * parts, TokensPerSequence(plan) * kChannels,
          [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; ++i) {
              const auto& sequence = plan.sequences()[static_cast<size_t>(i / parts)];
              const int64_t first = i % parts * kChannels;
              ConvolveRun(out, x, options, RunOf(sequence, state.kv, state.offset), first,
                          std::min(kChannels, channels - first));
            }
          });
}

void CpuOps::DoDeltaRule(const Tensor& out, const Tensor& qkv, const Tensor& gates,
                         const DeltaOptions& options, const StatePart& state,
                         const AttentionPlan& plan) {
  const int64_t heads = options.num_value_heads;
  ForEach(std::ssize(plan.sequences()) * heads,
          TokensPerSequence(plan) * options.key_dim * options.value_dim / 4,
          [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; ++i) {
              const auto& sequence = plan.sequences()[static_cast<size_t>(i / heads)];
              DeltaRun(out, qkv, gates, options, RunOf(sequence, state.kv, state.offset),
                       i % heads);
            }
          });
}

void CpuOps::DoStateScan(const Tensor& out, const Tensor& xbc, const Tensor& dt,
                         const ScanOptions& options, const StatePart& state,
                         const AttentionPlan& plan) {
  const int64_t heads = options.num_heads;
  ForEach(std::ssize(plan.sequences()) * heads,
          TokensPerSequence(plan) * options.head_dim * options.state_dim / 4,
          [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; ++i) {
              const auto& sequence = plan.sequences()[static_cast<size_t>(i / heads)];
              ScanRun(out, xbc, dt, options, RunOf(sequence, state.kv, state.offset), i % heads);
            }
          });
}

void CpuOps::DoSelectiveScan(const Tensor& out, const Tensor& x, const Tensor& dt, const Tensor& bc,
                             const SelectiveOptions& options, const StatePart& state,
                             const AttentionPlan& plan) {
  const int64_t channels = x.shape[1], parts = (channels + kChannels - 1) / kChannels;
  ForEach(std::ssize(plan.sequences()) * parts,
          TokensPerSequence(plan) * kChannels * options.a.rows(),
          [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; ++i) {
              const auto& sequence = plan.sequences()[static_cast<size_t>(i / parts)];
              const int64_t first = i % parts * kChannels;
              SelectRun(out, x, dt, bc, options, RunOf(sequence, state.kv, state.offset), first,
                        std::min(kChannels, channels - first));
            }
          });
}

void CpuOps::DoGatedNorm(const Tensor& out, const Tensor& x, const Tensor& gate,
                         const GatedNormOptions& options) {
  ForEach(x.rows(), 4 * x.shape[1], [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) GateNormRow(out, x, gate, options, t);
  });
}

void CpuOps::DoGateBySigmoid(const Tensor& x, const Tensor& gate) {
  ForEach(x.rows(), 4 * x.shape[1], [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) GateRow(x, gate, t);
  });
}

void CpuOps::DoMultiplyBy(const Tensor& x, const Tensor& y) {
  ForEach(x.rows(), x.shape[1], [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) MultiplyRow(x, y, t);
  });
}

}  // namespace tandem
