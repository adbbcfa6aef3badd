#pragma once

// The recurrences of layers that keep a state instead of keys and values, token by token in
// float32, for one sequence and some of its channels or one of its heads. Both backends of the host
// run them; they differ in how they cut the work and in the instruction set of the loops, which
// changes no bit. A state lies in the cache's blocks, one for each: that of block b is the state
// after the last token of b that has run. So a full block has the state at its end, and another
// request can go on from it. Drafts run from a copy and leave no state, so those that are rejected
// need not be taken back. Thread: any, on disjoint channels or heads of a sequence. Pure but for
// `out` and the states; scratch memory is the thread's and is kept, so that a step allocates
// nothing once its sizes have been seen. Sources: depthwise convolution and gated delta rule as in
// HF's Qwen3NextForCausalLM (Yang et al. 2024, "Gated Delta Networks"); the scan as in HF's
// Mamba2ForCausalLM (Dao and Gu 2024); that of Mamba as in its JambaForCausalLM (Gu and Dao 2023).

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace tandem {

struct StateKernels;  // cpu/state_loops.h

// A sequence's tokens of one step in the states of one layer.
struct StateRun {
  BatchSequence tokens;
  int block_size = 0;
  float* states = nullptr;  // of block 0
  int64_t stride = 0;       // floats between the states of two blocks

  float* StateOf(int32_t position) const {
    return states + tokens.blocks[position / block_size] * stride;
  }
  // Whether the state after token i of the run stays: the last one in a block that is no draft.
  bool LeavesState(int32_t i) const {
    const bool ends_block = (tokens.first_position + i + 1) % block_size == 0;
    return i + 1 == tokens.num_certain() || (i < tokens.num_certain() && ends_block);
  }
};

// One past the last of the sequences from `begin` on that may run side by side. The next one goes
// on from the state of a block that one of these fills in this step: a prefix is shared as soon as
// it is scheduled, and such states are there only when the sequences before it have run.
size_t EndOfIndependent(std::span<const BatchSequence> sequences, size_t begin, int block_size);

// The last of sequences[begin, i) that leaves the state from which sequence i goes on; i: none
// does.
size_t LeaderOf(std::span<const BatchSequence> sequences, size_t begin, size_t i, int block_size);

// Of the part of a layer's state that begins at `offset`.
StateRun RunOf(const BatchSequence& tokens, const LayerKv& kv, int64_t offset);

void ConvolveRun(const StateKernels& kernels, const Tensor& out, const Tensor& x,
                 const ConvOptions& options, const StateRun& run, int64_t first_channel,
                 int64_t num_channels);
void DeltaRun(const StateKernels& kernels, const Tensor& out, const Tensor& qkv,
              const Tensor& gates, const DeltaOptions& options, const StateRun& run,
              int64_t value_head);
void ScanRun(const StateKernels& kernels, const Tensor& out, const Tensor& xbc, const Tensor& dt,
             const ScanOptions& options, const StateRun& run, int64_t head);
// The scan of Mamba, not Mamba-2.
void SelectRun(const StateKernels& kernels, const Tensor& out, const Tensor& x, const Tensor& dt,
               const Tensor& bc, const SelectiveOptions& options, const StateRun& run,
               int64_t first_channel, int64_t num_channels);
// A row.
void GateNormRow(const StateKernels& kernels, const Tensor& out, const Tensor& x,
                 const Tensor& gate, const GatedNormOptions& options, int64_t row);
void MultiplyRow(const StateKernels& kernels, const Tensor& x, const Tensor& y, int64_t row);
void GateRow(const StateKernels& kernels, const Tensor& x, const Tensor& gate, int64_t row);

}  // namespace tandem
