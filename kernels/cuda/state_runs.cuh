#pragma once

// What the kernels of layers with a state have in common: the requests whose states they keep
// (kernels/recurrence.h), one block of the grid's first dimension for each. Device code.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.cuh"

namespace tandem {

struct StateArgs {
  const CudaStateRun* runs;
  const int32_t* block_table;
  float* states;   // the part of block 0
  int64_t stride;  // numbers between the states of two blocks
  int block_size;

  // The state that the block of a position has.
  __device__ float* At(const CudaStateRun& run, int position) const {
    const int64_t block = block_table[run.table_begin + position / block_size];
    return states + block * stride;
  }
  // Whether the state after token i of the run stays: StateRun::LeavesState.
  __device__ bool IsKept(const CudaStateRun& run, int i) const {
    if (i >= run.num_certain) return false;
    return i + 1 == run.num_certain || (run.first_position + i + 1) % block_size == 0;
  }
};

// f(run) for the chain of this block's request, in its order; nothing for a request that is in the
// chain of another one, nor for padding.
template <class F>
__device__ inline void ForEachRun(const StateArgs& args, F f) {
  int next = args.runs[blockIdx.x].is_first != 0 ? static_cast<int>(blockIdx.x) : -1;
  while (next >= 0) {
    const CudaStateRun run = args.runs[next];
    f(run);
    next = run.next;
  }
}

inline StateArgs StateArgsOf(const StatePart& state, const CudaAttentionPlan& plan) {
  CHECK_EQ(plan.shape.state_block_size, state.kv.block_size);
  return {.runs = plan.state_runs,
          .block_table = plan.batch().block_table.Data<int32_t>(),
          .states = state.kv.states + state.offset,
          .stride = state.kv.state_stride,
          .block_size = state.kv.block_size};
}

}  // namespace tandem
