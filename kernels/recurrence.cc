#include "kernels/recurrence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/state_loops.h"
#include "kernels/elementary_functions.h"

namespace tandem {
namespace {

constexpr int64_t kChannelsAtOnce = 64;
constexpr int64_t kMaxKernel = 8;
constexpr int64_t kTokensAtOnce = 16;  // whose gates of a head are one row

// Numbers [first, first + count) of a row.
void LoadRow(const StateKernels& kernels, const Tensor& x, int64_t row, int64_t first,
             int64_t count, float* to) {
  const Tensor from = x.Rows(row, 1).Columns(first, count);
  if (x.dtype == DType::kBf16) return kernels.widen(&from.Data<Bf16>()->bits, count, to);
  ConvertTensor(Tensor(to, DType::kF32, {1, count}), from);
}
void StoreRow(const StateKernels& kernels, const Tensor& out, int64_t row, int64_t first,
              int64_t count, float* from) {
  const Tensor to = out.Rows(row, 1).Columns(first, count);
  if (out.dtype == DType::kBf16) return kernels.narrow(from, count, &to.Data<Bf16>()->bits);
  ConvertTensor(to, Tensor(from, DType::kF32, {1, count}));
}

// A number of each of `count` rows.
void LoadColumn(const StateKernels& kernels, const Tensor& x, int64_t first_row, int64_t count,
                int64_t column, float* to) {
  for (int64_t i = 0; i < count; ++i) LoadRow(kernels, x, first_row + i, column, 1, to + i);
}

float* RoomFor(int64_t size, std::vector<float>* room) {
  if (std::ssize(*room) < size) room->resize(static_cast<size_t>(size));
  return room->data();
}
// The thread's, until its next call.
float* Scratch(int64_t size) {
  thread_local std::vector<float> room;
  return RoomFor(size, &room);
}
// The same beside it: of a state that drafts go on from.
float* DraftState(int64_t size) {
  thread_local std::vector<float> room;
  return RoomFor(size, &room);
}

// The rate at which a head's state decays.
float RateOf(const Tensor& a_log, int64_t head) {
  return -ExpOf<FloatOps>(a_log.Data<float>()[head]);
}

// Calls f(begin, end, state) for the tokens [begin, end) of the run in each block, whose state is
// at `state` as it was before them, and where f leaves it as it is after them; and once for its
// drafts, with a copy.
template <class F>
void ForEachBlock(const StateRun& run, int64_t state_size, F f) {
  const int32_t first = run.tokens.first_position, end = first + run.tokens.num_certain();
  for (int32_t position = first; position < end;) {
    const int32_t block_end = position - position % run.block_size + run.block_size;
    const int32_t stop = std::min(end, block_end);
    float* state = run.StateOf(position);
    if (position == 0) {
      std::fill_n(state, state_size, 0.0f);
    } else if (position % run.block_size == 0) {
      std::memcpy(state, run.StateOf(position - 1),
                  static_cast<size_t>(state_size) * sizeof(float));
    }
    f(run.tokens.first_token + position - first, run.tokens.first_token + stop - first, state);
    position = stop;
  }
  if (run.tokens.num_drafts == 0) return;
  float* state = DraftState(state_size);
  std::copy_n(run.StateOf(end - 1), state_size, state);
  const int32_t first_draft = run.tokens.first_token + run.tokens.num_certain();
  f(first_draft, first_draft + run.tokens.num_drafts, state);
}

// x / |x| * scale
void Normalize(float* x, int64_t size, float scale) {
  float sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += x[i] * x[i];
  const float factor = scale / std::sqrt(sum + 1e-6f);
  for (int64_t i = 0; i < size; ++i) x[i] *= factor;
}

bool LeavesStateIn(const BatchSequence& tokens, int32_t block, int block_size) {
  const int32_t last = (tokens.first_position + tokens.num_tokens - 1) / block_size;
  for (int32_t i = tokens.first_position / block_size; i <= last; ++i) {
    if (tokens.blocks[i] == block) return true;
  }
  return false;
}

}  // namespace

size_t LeaderOf(std::span<const BatchSequence> sequences, size_t begin, size_t i, int block_size) {
  const int32_t first = sequences[i].first_position;
  // Blocks that are not full are never shared.
  if (first == 0 || first % block_size != 0) return i;
  const int32_t start = sequences[i].blocks[first / block_size - 1];
  for (size_t j = i; j-- > begin;) {
    if (LeavesStateIn(sequences[j], start, block_size)) return j;
  }
  return i;
}

size_t EndOfIndependent(std::span<const BatchSequence> sequences, size_t begin, int block_size) {
  for (size_t i = begin + 1; i < sequences.size(); ++i) {
    if (LeaderOf(sequences, begin, i, block_size) != i) return i;
  }
  return sequences.size();
}

StateRun RunOf(const BatchSequence& tokens, const LayerKv& kv, int64_t offset) {
  return {.tokens = tokens,
          .block_size = kv.block_size,
          .states = kv.states + offset,
          .stride = kv.state_stride};
}

// The state has the last inputs, oldest first: rows of all channels.
void ConvolveRun(const StateKernels& kernels, const Tensor& out, const Tensor& x,
                 const ConvOptions& options, const StateRun& run, int64_t first_channel,
                 int64_t num_channels) {
  const int64_t kernel = options.weight.rows(), channels = options.weight.shape[1];
  const int64_t num_kept = kernel - 1;
  CHECK(num_channels <= kChannelsAtOnce && kernel <= kMaxKernel) << num_channels << kernel;
  // The last inputs, in turns.
  float kept[kMaxKernel][kChannelsAtOnce], sums[kChannelsAtOnce];
  const float* inputs[kMaxKernel];
  const float* bias = options.bias.empty() ? nullptr : options.bias.Data<float>() + first_channel;
  // Others copy and clear their own channels of the state.
  const int32_t first = run.tokens.first_position;
  for (int64_t j = 0; j < num_kept; ++j) {
    if (first == 0) {
      std::fill_n(kept[j], num_channels, 0.0f);
    } else {
      std::copy_n(run.StateOf(first - 1) + j * channels + first_channel, num_channels, kept[j]);
    }
  }
  for (int32_t i = 0; i < run.tokens.num_tokens; ++i) {
    const int64_t token = run.tokens.first_token + i;
    LoadRow(kernels, x, token, first_channel, num_channels, kept[(i + num_kept) % kernel]);
    for (int64_t j = 0; j < kernel; ++j) inputs[j] = kept[(i + j) % kernel];
    kernels.convolve({.inputs = inputs,
                      .weight = options.weight.Data<float>() + first_channel,
                      .bias = bias,
                      .out = sums,
                      .kernel = kernel,
                      .size = num_channels,
                      .weight_stride = options.weight.row_stride});
    if (options.has_silu) kernels.silu(num_channels, sums);
    StoreRow(kernels, out, token, first_channel, num_channels, sums);
    if (!run.LeavesState(i)) continue;
    for (int64_t j = 0; j < num_kept; ++j) {
      std::copy_n(inputs[j + 1], num_channels,
                  run.StateOf(first + i) + j * channels + first_channel);
    }
  }
}

// The head's state is S [key_dim, value_dim].
void DeltaRun(const StateKernels& kernels, const Tensor& out, const Tensor& qkv,
              const Tensor& gates, const DeltaOptions& options, const StateRun& all_heads,
              int64_t value_head) {
  const int64_t key_dim = options.key_dim, value_dim = options.value_dim;
  const int64_t key_head = value_head / (options.num_value_heads / options.num_key_heads);
  const int64_t keys = options.num_key_heads * key_dim, size = key_dim * value_dim;
  StateRun run = all_heads;
  run.states += value_head * size;
  float* q = Scratch(3 * key_dim + 2 * value_dim);
  float* k = q + key_dim;
  float* kept = k + key_dim;  // of each row, if these differ
  float* v = kept + key_dim;
  float* sums = v + value_dim;
  const float rate = RateOf(options.a_log, value_head);
  const int64_t num_decays = options.dt_bias.rows() / options.num_value_heads;  // of this head
  const int64_t stride = num_decays == 1 ? 0 : 1;
  const float* dt_bias = options.dt_bias.Data<float>() + value_head * num_decays;
  const int64_t first_decay = options.num_value_heads + value_head * num_decays;
  float betas[kTokensAtOnce], decays[kTokensAtOnce], biases[kTokensAtOnce];
  std::fill_n(biases, kTokensAtOnce, dt_bias[0]);
  const auto load_gates = [&](int64_t t, int64_t count) {
    LoadColumn(kernels, gates, t, count, value_head, betas);
    kernels.sigmoid(count, betas);
    if (num_decays > 1) return;
    LoadColumn(kernels, gates, t, count, first_decay, decays);
    kernels.softplus(biases, count, decays);
    kernels.decay(rate, count, decays);
  };
  ForEachBlock(run, size, [&](int64_t begin, int64_t end, float* state) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = (t - begin) % kTokensAtOnce;
      if (i == 0) load_gates(t, std::min(kTokensAtOnce, end - t));
      LoadRow(kernels, qkv, t, key_head * key_dim, key_dim, q);
      LoadRow(kernels, qkv, t, keys + key_head * key_dim, key_dim, k);
      LoadRow(kernels, qkv, t, 2 * keys + value_head * value_dim, value_dim, v);
      Normalize(q, key_dim, 1 / std::sqrt(static_cast<float>(key_dim)));
      Normalize(k, key_dim, 1);
      if (num_decays > 1) {
        LoadRow(kernels, gates, t, first_decay, num_decays, kept);
        kernels.softplus(dt_bias, num_decays, kept);
        kernels.decay(rate, num_decays, kept);
      }
      kernels.delta({.state = state,
                     .q = q,
                     .k = k,
                     .kept = num_decays > 1 ? kept : decays + i,
                     .v = v,
                     .out = sums,
                     .key_dim = key_dim,
                     .value_dim = value_dim,
                     .kept_stride = stride,
                     .beta = betas[i]});
      StoreRow(kernels, out, t, value_head * value_dim, value_dim, sums);
    }
  });
}

// The head's state is S^T [state_dim, head_dim].
void ScanRun(const StateKernels& kernels, const Tensor& out, const Tensor& xbc, const Tensor& dt,
             const ScanOptions& options, const StateRun& all_heads, int64_t head) {
  const int64_t dim = options.head_dim, num_states = options.state_dim;
  const int64_t inner = options.num_heads * dim, size = dim * num_states;
  const int64_t group = head * options.num_groups / options.num_heads;
  StateRun run = all_heads;
  run.states += head * size;
  float* x = Scratch(2 * dim + 2 * num_states);
  float* sums = x + dim;
  float* b = sums + dim;
  float* c = b + num_states;
  const float rate = RateOf(options.a_log, head);
  const float skip = options.d.Data<float>()[head];
  float steps[kTokensAtOnce], kept[kTokensAtOnce], biases[kTokensAtOnce];
  std::fill_n(biases, kTokensAtOnce, options.dt_bias.Data<float>()[head]);
  const auto load_steps = [&](int64_t t, int64_t count) {
    LoadColumn(kernels, dt, t, count, head, steps);
    kernels.softplus(biases, count, steps);
    for (int64_t i = 0; i < count; ++i) {
      steps[i] = kept[i] = std::clamp(steps[i], options.dt_min, options.dt_max);
    }
    kernels.decay(rate, count, kept);
  };
  ForEachBlock(run, size, [&](int64_t begin, int64_t end, float* state) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = (t - begin) % kTokensAtOnce;
      if (i == 0) load_steps(t, std::min(kTokensAtOnce, end - t));
      LoadRow(kernels, xbc, t, head * dim, dim, x);
      LoadRow(kernels, xbc, t, inner + group * num_states, num_states, b);
      LoadRow(kernels, xbc, t, inner + (options.num_groups + group) * num_states, num_states, c);
      kernels.scan({.state = state,
                    .x = x,
                    .b = b,
                    .c = c,
                    .out = sums,
                    .num_states = num_states,
                    .dim = dim,
                    .step = steps[i],
                    .kept = kept[i],
                    .skip = skip});
      StoreRow(kernels, out, t, head * dim, dim, sums);
    }
  });
}

// The state is [state_dim, all channels]; these channels of it are kept here while the run goes on.
void SelectRun(const StateKernels& kernels, const Tensor& out, const Tensor& x, const Tensor& dt,
               const Tensor& bc, const SelectiveOptions& options, const StateRun& run,
               int64_t first_channel, int64_t num_channels) {
  const int64_t num_states = options.a.rows(), channels = options.a.shape[1];
  const int64_t size = num_channels;
  float* state = Scratch((num_states + 3) * size + 2 * num_states);
  float* values = state + num_states * size;
  float* steps = values + size;
  float* sums = steps + size;
  float* b = sums + size;
  float* c = b + num_states;
  const float* skip = options.d.Data<float>() + first_channel;
  const float* dt_bias = options.dt_bias.Data<float>() + first_channel;
  const int32_t first = run.tokens.first_position;
  for (int64_t n = 0; n < num_states; ++n) {
    float* row = state + n * size;
    if (first == 0) {
      std::fill_n(row, size, 0.0f);
    } else {
      std::copy_n(run.StateOf(first - 1) + n * channels + first_channel, size, row);
    }
  }
  for (int32_t i = 0; i < run.tokens.num_tokens; ++i) {
    const int64_t token = run.tokens.first_token + i;
    LoadRow(kernels, x, token, first_channel, size, values);
    LoadRow(kernels, dt, token, first_channel, size, steps);
    LoadRow(kernels, bc, token, 0, 2 * num_states, b);
    kernels.softplus(dt_bias, size, steps);
    kernels.select({.state = state,
                    .a = options.a.Data<float>() + first_channel,
                    .x = values,
                    .steps = steps,
                    .skip = skip,
                    .b = b,
                    .c = c,
                    .out = sums,
                    .num_states = num_states,
                    .size = size,
                    .a_stride = options.a.row_stride});
    StoreRow(kernels, out, token, first_channel, size, sums);
    if (!run.LeavesState(i)) continue;
    float* kept = run.StateOf(first + i) + first_channel;
    for (int64_t n = 0; n < num_states; ++n)
      std::copy_n(state + n * size, size, kept + n * channels);
  }
}

void GateNormRow(const StateKernels& kernels, const Tensor& out, const Tensor& x,
                 const Tensor& gate, const GatedNormOptions& options, int64_t row) {
  const int64_t size = x.shape[1], group = options.group_size;
  const int64_t num_weights = options.weight.rows();
  float* values = Scratch(2 * size);
  float* gates = values + size;
  LoadRow(kernels, x, row, 0, size, values);
  LoadRow(kernels, gate, row, 0, size, gates);
  (options.has_sigmoid ? kernels.sigmoid : kernels.silu)(size, gates);
  for (int64_t begin = 0; begin < size; begin += group) {
    float* own = values + begin;
    const float* factors = gates + begin;
    const float* weight = options.weight.Data<float>() + begin % num_weights;
    for (int64_t i = 0; options.gates_first && i < group; ++i) own[i] *= factors[i];
    float sum = 0;
    for (int64_t i = 0; i < group; ++i) sum += own[i] * own[i];
    const float scale = 1 / std::sqrt(sum / static_cast<float>(group) + options.epsilon);
    for (int64_t i = 0; i < group; ++i) own[i] *= scale * weight[i];
    for (int64_t i = 0; !options.gates_first && i < group; ++i) own[i] *= factors[i];
  }
  StoreRow(kernels, out, row, 0, size, values);
}

void MultiplyRow(const StateKernels& kernels, const Tensor& x, const Tensor& y, int64_t row) {
  const int64_t size = x.shape[1];
  float* values = Scratch(2 * size);
  float* factors = values + size;
  LoadRow(kernels, x, row, 0, size, values);
  LoadRow(kernels, y, row, 0, size, factors);
  for (int64_t i = 0; i < size; ++i) values[i] *= factors[i];
  StoreRow(kernels, x, row, 0, size, values);
}

void GateRow(const StateKernels& kernels, const Tensor& x, const Tensor& gate, int64_t row) {
  const int64_t size = x.shape[1], num_gates = gate.shape[1];
  float* values = Scratch(size + num_gates);
  float* gates = values + size;
  LoadRow(kernels, x, row, 0, size, values);
  LoadRow(kernels, gate, row, 0, num_gates, gates);
  kernels.sigmoid(num_gates, gates);
  for (int64_t i = 0; i < size; ++i) values[i] *= gates[num_gates == 1 ? 0 : i];
  StoreRow(kernels, x, row, 0, size, values);
}

}  // namespace tandem
