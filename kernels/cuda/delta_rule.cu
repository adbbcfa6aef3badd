// DeltaRule. S decayed and then multiplied by k and by q in one pass gives both sums, as
// (S + k d^T)^T q = S^T q + (k . q) d.

#include "kernels/cuda/state_tile.cuh"

namespace tandem {
namespace {

struct Delta {
  AnyRows out, qkv, gates;
  const float* a_log;
  const float* dt_bias;
  int64_t num_heads;      // of values
  int64_t heads_per_key;  // value heads of a key head
  int64_t keys;           // numbers of all key heads
  bool decays_rows;       // each row has a decay of its own, else the head has one

  __device__ float Decay(float rate, int64_t token, int64_t i) const {
    return expf(rate * Softplus(gates.Load(token, num_heads + i) + dt_bias[i]));
  }

  template <int kRows>
  __device__ void Step(StateTile<kRows>* tile, int64_t head, int64_t token, int turn) const {
    constexpr int kMaxRows = StateTile<kRows>::kMaxRows;
    __shared__ float queries[2][kMaxRows], keys_of[2][kMaxRows], decays[2][kMaxRows];
    __shared__ float norms[2][kTileWarps][3];
    const int half = turn % 2;
    const auto num_rows = tile->num_rows;
    const int64_t first_key = head / heads_per_key * num_rows;
    const float rate = -expf(a_log[head]);
    const float beta = 1 / (1 + expf(-gates.Load(token, head)));
    float values[kThreadColumns];
#pragma unroll
    for (int c = 0; c < kThreadColumns; ++c) {
      const int64_t column = 2 * keys + head * tile->num_columns + tile->first_column + c;
      values[c] = tile->HasColumn(c) ? qkv.Load(token, column) : 0;
    }
    float qq = 0, kk = 0, qk = 0;
    for (int i = static_cast<int>(threadIdx.x); i < kMaxRows; i += kTileThreads) {
      const bool is_there = i < num_rows;
      const float q = is_there ? qkv.Load(token, first_key + i) : 0;
      const float k = is_there ? qkv.Load(token, keys + first_key + i) : 0;
      queries[half][i] = q;
      keys_of[half][i] = k;
      if (decays_rows) decays[half][i] = is_there ? Decay(rate, token, head * num_rows + i) : 1;
      qq += q * q;
      kk += k * k;
      qk += q * k;
    }
    qq = WarpSum(qq);
    kk = WarpSum(kk);
    qk = WarpSum(qk);
    if (threadIdx.x % kWarpSize == 0) {
      float* norm = norms[half][threadIdx.x / kWarpSize];
      norm[0] = qq;
      norm[1] = kk;
      norm[2] = qk;
    }
    __syncthreads();
    qq = kk = qk = 0;
#pragma unroll
    for (int w = 0; w < kTileWarps; ++w) {
      qq += norms[half][w][0];
      kk += norms[half][w][1];
      qk += norms[half][w][2];
    }
    constexpr float kEpsilon = 1e-6f;
    const float q_scale = rsqrtf(qq + kEpsilon) * rsqrtf(static_cast<float>(num_rows));
    const float k_scale = rsqrtf(kk + kEpsilon);
    const float head_decay = decays_rows ? 1 : Decay(rate, token, head);
    float sums[2][kThreadColumns] = {};  // of k and of q, not divided by their lengths
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = tile->Row(i);
      const float decay = decays_rows ? decays[half][row] : head_decay;
      const float k = keys_of[half][row], q = queries[half][row];
#pragma unroll
      for (int c = 0; c < kThreadColumns; ++c) {
        const float value = tile->values[i][c] * decay;
        tile->values[i][c] = value;
        sums[0][c] += value * k;
        sums[1][c] += value * q;
      }
    }
    SumRows(sums, turn);
    float deltas[kThreadColumns];
#pragma unroll
    for (int c = 0; c < kThreadColumns; ++c) {
      deltas[c] = beta * (values[c] - sums[0][c] * k_scale) * k_scale;
      if (tile->group != 0 || !tile->HasColumn(c)) continue;
      out.Store(token, head * tile->num_columns + tile->first_column + c,
                (sums[1][c] + qk * deltas[c]) * q_scale);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int c = 0; c < kThreadColumns; ++c) {
        tile->values[i][c] += keys_of[half][tile->Row(i)] * deltas[c];
      }
    }
  }
};

}  // namespace

void CudaOps::DoDeltaRule(const Tensor& out, const Tensor& qkv, const Tensor& gates,
                          const DeltaOptions& options, const StatePart& state,
                          const AttentionPlan& plan) {
  const Delta rule = {.out = RowsOf(out),
                      .qkv = RowsOf(qkv),
                      .gates = RowsOf(gates),
                      .a_log = options.a_log.Data<float>(),
                      .dt_bias = options.dt_bias.Data<float>(),
                      .num_heads = options.num_value_heads,
                      .heads_per_key = options.num_value_heads / options.num_key_heads,
                      .keys = options.num_key_heads * options.key_dim,
                      .decays_rows = options.dt_bias.rows() != options.num_value_heads};
  LaunchStateTiles(queue(), rule, {.rows = options.key_dim, .columns = options.value_dim},
                   options.num_value_heads, state, static_cast<const CudaAttentionPlan&>(plan));
}

}  // namespace tandem
