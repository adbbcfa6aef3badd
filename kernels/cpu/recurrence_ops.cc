// The ops of layers with a state: a thread takes one sequence's head, or some of its channels. The
// tokens of a sequence come one after another, so a single prompt is work for as many threads as
// there are heads. A sequence that goes on from a state that this step leaves comes after it.

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

template <class Run>
void CpuOps::ForEachPiece(const AttentionPlan& plan, int block_size, int64_t pieces,
                          int64_t piece_ns, const Run& run) {
  const auto sequences = plan.sequences();
  for (size_t begin = 0; begin < sequences.size();) {
    const size_t end = EndOfIndependent(sequences, begin, block_size);
    const auto num_pieces = static_cast<int64_t>(end - begin) * pieces;
    ForEach(num_pieces, piece_ns, [&](int64_t first, int64_t last, int) {
      for (int64_t i = first; i < last; ++i) {
        run(sequences[begin + static_cast<size_t>(i / pieces)], i % pieces);
      }
    });
    begin = end;
  }
}

void CpuOps::DoConvolve(const Tensor& out, const Tensor& x, const ConvOptions& options,
                        const StatePart& state, const AttentionPlan& plan) {
  const int64_t channels = x.shape[1], parts = (channels + kChannels - 1) / kChannels;
  const int64_t cost = TokensPerSequence(plan) * kChannels;
  ForEachPiece(plan, state.kv.block_size, parts, cost,
               [&](const BatchSequence& sequence, int64_t piece) {
                 const int64_t first = piece * kChannels;
                 ConvolveRun(table_.state, out, x, options, RunOf(sequence, state.kv, state.offset),
                             first, std::min(kChannels, channels - first));
               });
}

void CpuOps::DoDeltaRule(const Tensor& out, const Tensor& qkv, const Tensor& gates,
                         const DeltaOptions& options, const StatePart& state,
                         const AttentionPlan& plan) {
  const int64_t heads = options.num_value_heads;
  const int64_t cost = TokensPerSequence(plan) * options.key_dim * options.value_dim / 4;
  ForEachPiece(plan, state.kv.block_size, heads, cost,
               [&](const BatchSequence& sequence, int64_t head) {
                 DeltaRun(table_.state, out, qkv, gates, options,
                          RunOf(sequence, state.kv, state.offset), head);
               });
}

void CpuOps::DoStateScan(const Tensor& out, const Tensor& xbc, const Tensor& dt,
                         const ScanOptions& options, const StatePart& state,
                         const AttentionPlan& plan) {
  const int64_t heads = options.num_heads;
  const int64_t cost = TokensPerSequence(plan) * options.head_dim * options.state_dim / 4;
  ForEachPiece(
      plan, state.kv.block_size, heads, cost, [&](const BatchSequence& sequence, int64_t head) {
        ScanRun(table_.state, out, xbc, dt, options, RunOf(sequence, state.kv, state.offset), head);
      });
}

void CpuOps::DoSelectiveScan(const Tensor& out, const Tensor& x, const Tensor& dt, const Tensor& bc,
                             const SelectiveOptions& options, const StatePart& state,
                             const AttentionPlan& plan) {
  const int64_t channels = x.shape[1], parts = (channels + kChannels - 1) / kChannels;
  const int64_t cost = TokensPerSequence(plan) * kChannels * options.a.rows();
  ForEachPiece(
      plan, state.kv.block_size, parts, cost, [&](const BatchSequence& sequence, int64_t piece) {
        const int64_t first = piece * kChannels;
        SelectRun(table_.state, out, x, dt, bc, options, RunOf(sequence, state.kv, state.offset),
                  first, std::min(kChannels, channels - first));
      });
}

void CpuOps::DoGatedNorm(const Tensor& out, const Tensor& x, const Tensor& gate,
                         const GatedNormOptions& options) {
  ForEach(x.rows(), 4 * x.shape[1], [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) GateNormRow(table_.state, out, x, gate, options, t);
  });
}

void CpuOps::DoGateBySigmoid(const Tensor& x, const Tensor& gate) {
  ForEach(x.rows(), 4 * x.shape[1], [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) GateRow(table_.state, x, gate, t);
  });
}

void CpuOps::DoMultiplyBy(const Tensor& x, const Tensor& y) {
  ForEach(x.rows(), x.shape[1], [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) MultiplyRow(table_.state, x, y, t);
  });
}

}  // namespace tandem
