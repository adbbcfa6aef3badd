// FlashInfer's attention as plain loops, block by block, over the numbers that its kernels read:
// the tests use it in their place, so that plans, places and pages are exercised without a device.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/flashinfer/flashinfer.h"
#include "kernels/tensor.h"

namespace tandem {
namespace {

// Softmax-weighted sum of values over some keys, and the logarithm (base 2) of the weights' total.
struct State {
  std::vector<float> sums;
  float lse = -INFINITY;
};

// Query row `q` of head `head` over its visible keys [begin, end).
State Attend(const FlashInferCall& call, int64_t r, int head, const Bf16* q, int64_t begin,
             int64_t end, int64_t first_key, int64_t position) {
  const int64_t dim = call.head_dim;
  const int kv_head = head / (call.num_heads / call.num_kv_heads);
  State state = {.sums = std::vector<float>(static_cast<size_t>(dim))};
  std::vector<float> scores;
  std::vector<const Bf16*> values;
  for (int64_t key = std::max(begin, first_key); key < std::min(end, position + 1); ++key) {
    const int64_t page = call.pages[call.page_start[r] + key / call.block_size];
    const int64_t at =
        ((page * call.num_kv_heads + kv_head) * call.block_size + key % call.block_size) * dim;
    float score = 0;
    for (int64_t i = 0; i < dim; ++i) {
      score += ToFloat(q[i]) * ToFloat(static_cast<const Bf16*>(call.k)[at + i]);
    }
    score *= call.scale;
    if (call.soft_cap > 0) score = call.soft_cap * std::tanh(score / call.soft_cap);
    scores.push_back(score);
    values.push_back(static_cast<const Bf16*>(call.v) + at);
  }
  if (scores.empty()) return state;
  const float maximum = *std::max_element(scores.begin(), scores.end());
  float total = 0;
  for (size_t key = 0; key < scores.size(); ++key) {
    const float weight = std::exp(scores[key] - maximum);
    total += weight;
    for (size_t i = 0; i < state.sums.size(); ++i)
      state.sums[i] += weight * ToFloat(values[key][i]);
  }
  for (float& sum : state.sums) sum /= total;
  state.lse = maximum / std::log(2.0f) + std::log2(total);
  return state;
}

void Store(const FlashInferCall& call, const State& state, int64_t row, int head) {
  const bool is_split = call.partial != nullptr;
  const int64_t at = row * call.num_heads + head;
  auto* out = static_cast<Bf16*>(is_split ? call.partial : call.out) + at * call.head_dim;
  for (size_t i = 0; i < state.sums.size(); ++i) out[i] = ToBf16(state.sums[i]);
  if (is_split) call.partial_lse[at] = state.lse;
}

void RunDecodeBlock(const FlashInferCall& call, int64_t block) {
  const int64_t r = call.request[block], length = call.context_len[r];
  const int64_t size = call.partial != nullptr ? *call.chunk_size : length;
  const int64_t begin = call.partial != nullptr ? call.chunk[block] * size : 0;
  const int64_t first_key = call.sliding_window > 0 ? length - call.sliding_window : 0;
  for (int head = 0; head < call.num_heads; ++head) {
    const Bf16* q =
        static_cast<const Bf16*>(call.q) + r * call.q_stride + int64_t{head} * call.head_dim;
    Store(call,
          Attend(call, r, head, q, begin, std::min(begin + size, length), first_key, length - 1),
          block, head);
  }
}

void RunPrefillBlock(const FlashInferCall& call, int64_t block) {
  const int64_t r = call.request[block], length = call.context_len[r];
  const int64_t group = call.num_heads / call.num_kv_heads;
  const int64_t first_query = call.query_start[r];
  const int64_t num_queries = call.query_start[r + 1] - first_query;
  const int64_t first_row = call.query_tile[block] * call.tile_rows;
  const int64_t window_left = call.sliding_window > 0 ? call.sliding_window - 1 : length;
  const int64_t start =
      std::max<int64_t>(0, length + first_row / group - (num_queries + window_left));
  const bool is_split = call.partial != nullptr;
  const int64_t size = is_split ? *call.chunk_size : length;
  const int64_t begin = is_split ? std::min(call.chunk[block] * size + start, length) : start;
  const int64_t end = is_split ? std::min(begin + size, length) : length;
  const int64_t num_chunks = (std::min(length, window_left + call.tile_rows) + size - 1) / size;
  for (int64_t row = first_row; row < std::min(first_row + call.tile_rows, num_queries * group);
       ++row) {
    const int64_t query = row / group, position = length - num_queries + query;
    for (int kv_head = 0; kv_head < call.num_kv_heads; ++kv_head) {
      const int head = static_cast<int>(kv_head * group + row % group);
      const Bf16* q = static_cast<const Bf16*>(call.q) + (first_query + query) * call.q_stride +
                      int64_t{head} * call.head_dim;
      const int64_t to = is_split ? call.partial_start[r] + query * num_chunks + call.chunk[block]
                                  : first_query + query;
      Store(call, Attend(call, r, head, q, begin, end, position - window_left, position), to, head);
    }
  }
}

// Rows [starts[i], starts[i + 1]) of the partial results are out's row i.
void Merge(const FlashInferCall& call, const int32_t* starts, int64_t num_rows) {
  const int64_t dim = call.head_dim;
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t head = 0; head < call.num_heads; ++head) {
      float maximum = -INFINITY, total = 0;
      for (int64_t i = starts[row]; i < starts[row + 1]; ++i) {
        maximum = std::max(maximum, call.partial_lse[i * call.num_heads + head]);
      }
      std::vector<float> sums(static_cast<size_t>(dim));
      for (int64_t i = starts[row]; i < starts[row + 1]; ++i) {
        const int64_t at = i * call.num_heads + head;
        const float weight = std::exp2(call.partial_lse[at] - maximum);
        total += weight;
        for (int64_t d = 0; d < dim; ++d) {
          sums[static_cast<size_t>(d)] +=
              weight * ToFloat(static_cast<const Bf16*>(call.partial)[at * dim + d]);
        }
      }
      auto* out = static_cast<Bf16*>(call.out) + (row * call.num_heads + head) * dim;
      for (int64_t d = 0; d < dim; ++d) out[d] = ToBf16(sums[static_cast<size_t>(d)] / total);
    }
  }
}

}  // namespace

bool HasFlashInfer() { return true; }

StatusOr<int64_t> FlashInferDecodeBlocks(int, int, int) { return int64_t{12}; }

Status LaunchFlashInfer(cudaStream_t stream, const FlashInferCall& call) {
  // Its kernels load and store 16 bytes at a time.
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0;
  };
  if (!is_aligned(call.q) || !is_aligned(call.out) || call.q_stride % 8 != 0) {
    return InvalidArgumentError("q or out is misaligned");
  }
  cuda_emulation::Enqueue(stream, [call] {
    for (int64_t block = 0; block < call.num_blocks; ++block) {
      if (call.is_used != nullptr && !call.is_used[block]) continue;
      if (call.tile_rows == 0) {
        RunDecodeBlock(call, block);
      } else {
        RunPrefillBlock(call, block);
      }
    }
    if (call.partial == nullptr) return;
    const bool is_decode = call.tile_rows == 0;
    Merge(call, is_decode ? call.partial_start : call.merge_start,
          is_decode ? call.num_requests : call.num_tokens);
  });
  return OkStatus();
}

}  // namespace tandem
