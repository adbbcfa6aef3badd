// StateScan and SelectiveScan.

#include "kernels/cuda/state_tile.cuh"

namespace tandem {
namespace {

// B and C of a token, by all threads; waits for the whole block.
template <int kMaxRows>
struct InOut {
  const float* b;
  const float* c;

  __device__ static InOut Load(const AnyRows& from, int64_t token, int64_t first_b, int64_t first_c,
                               int64_t num_rows, int turn) {
    __shared__ float shared[2][2][kMaxRows];
    float(&half)[2][kMaxRows] = shared[turn % 2];
    for (int i = static_cast<int>(threadIdx.x); i < kMaxRows; i += kTileThreads) {
      half[0][i] = i < num_rows ? from.Load(token, first_b + i) : 0;
      half[1][i] = i < num_rows ? from.Load(token, first_c + i) : 0;
    }
    __syncthreads();
    return {half[0], half[1]};
  }
};

// A matrix is a head, [state_dim, head_dim].
struct Scan {
  AnyRows out, xbc, dt;
  const float* a_log;
  const float* dt_bias;
  const float* d;
  int64_t num_heads, num_groups;
  float dt_min, dt_max;

  template <int kRows>
  __device__ void Step(StateTile<kRows>* tile, int64_t head, int64_t token, int turn) const {
    const int64_t dim = tile->num_columns, inner = num_heads * dim;
    const int64_t group = head * num_groups / num_heads;
    const float softplus = Softplus(dt.Load(token, head) + dt_bias[head]);
    const float step = fminf(fmaxf(softplus, dt_min), dt_max);
    const float decay = expf(-expf(a_log[head]) * step);
    float x[kThreadColumns];
#pragma unroll
    for (int c = 0; c < kThreadColumns; ++c) {
      x[c] = tile->HasColumn(c) ? xbc.Load(token, head * dim + tile->first_column + c) : 0;
    }
    const auto in_out = InOut<StateTile<kRows>::kMaxRows>::Load(
        xbc, token, inner + group * tile->num_rows, inner + (num_groups + group) * tile->num_rows,
        tile->num_rows, turn);
    float sums[1][kThreadColumns] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float in = step * in_out.b[tile->Row(i)], read = in_out.c[tile->Row(i)];
#pragma unroll
      for (int c = 0; c < kThreadColumns; ++c) {
        const float value = tile->values[i][c] * decay + in * x[c];
        tile->values[i][c] = value;
        sums[0][c] += value * read;
      }
    }
    SumRows(sums, turn);
    if (tile->group != 0) return;
#pragma unroll
    for (int c = 0; c < kThreadColumns; ++c) {
      if (!tile->HasColumn(c)) continue;
      out.Store(token, head * dim + tile->first_column + c, sums[0][c] + d[head] * x[c]);
    }
  }
};

// One matrix, [state_dim, channels].
struct Selective {
  AnyRows out, x, dt, bc;
  const float* a;
  int64_t a_stride;
  const float* dt_bias;
  const float* d;

  template <int kRows>
  __device__ void Step(StateTile<kRows>* tile, int64_t, int64_t token, int turn) const {
    float values[kThreadColumns], steps[kThreadColumns];
#pragma unroll
    for (int c = 0; c < kThreadColumns; ++c) {
      const int64_t column = tile->first_column + c;
      const bool is_there = tile->HasColumn(c);
      values[c] = is_there ? x.Load(token, column) : 0;
      steps[c] = is_there ? Softplus(dt.Load(token, column) + dt_bias[column]) : 0;
    }
    const auto in_out =
        InOut<StateTile<kRows>::kMaxRows>::Load(bc, token, 0, tile->num_rows, tile->num_rows, turn);
    float sums[1][kThreadColumns] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = tile->Row(i);
      if (row >= tile->num_rows) break;
      const float in = in_out.b[row], read = in_out.c[row];
#pragma unroll
      for (int c = 0; c < kThreadColumns; ++c) {
        if (!tile->HasColumn(c)) continue;
        const float rate = a[row * a_stride + tile->first_column + c];
        const float value = tile->values[i][c] * expf(rate * steps[c]) + steps[c] * values[c] * in;
        tile->values[i][c] = value;
        sums[0][c] += value * read;
      }
    }
    SumRows(sums, turn);
    if (tile->group != 0) return;
#pragma unroll
    for (int c = 0; c < kThreadColumns; ++c) {
      if (!tile->HasColumn(c)) continue;
      const int64_t column = tile->first_column + c;
      out.Store(token, column, sums[0][c] + d[column] * values[c]);
    }
  }
};

}  // namespace

void CudaOps::DoStateScan(const Tensor& out, const Tensor& xbc, const Tensor& dt,
                          const ScanOptions& options, const StatePart& state,
                          const AttentionPlan& plan) {
  const Scan rule = {.out = RowsOf(out),
                     .xbc = RowsOf(xbc),
                     .dt = RowsOf(dt),
                     .a_log = options.a_log.Data<float>(),
                     .dt_bias = options.dt_bias.Data<float>(),
                     .d = options.d.Data<float>(),
                     .num_heads = options.num_heads,
                     .num_groups = options.num_groups,
                     .dt_min = options.dt_min,
                     .dt_max = options.dt_max};
  LaunchStateTiles(queue(), rule, {.rows = options.state_dim, .columns = options.head_dim},
                   options.num_heads, state, static_cast<const CudaAttentionPlan&>(plan));
}

void CudaOps::DoSelectiveScan(const Tensor& out, const Tensor& x, const Tensor& dt,
                              const Tensor& bc, const SelectiveOptions& options,
                              const StatePart& state, const AttentionPlan& plan) {
  const Selective rule = {.out = RowsOf(out),
                          .x = RowsOf(x),
                          .dt = RowsOf(dt),
                          .bc = RowsOf(bc),
                          .a = options.a.Data<float>(),
                          .a_stride = options.a.row_stride,
                          .dt_bias = options.dt_bias.Data<float>(),
                          .d = options.d.Data<float>()};
  LaunchStateTiles(queue(), rule, {.rows = options.a.rows(), .columns = x.shape[1]}, 1, state,
                   static_cast<const CudaAttentionPlan&>(plan));
}

}  // namespace tandem
