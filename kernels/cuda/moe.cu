// The ops around a mixture's products: the experts of each token, the tokens of each expert, and
// the weighted sum of the experts' results. All of it stays on the device.

#include <algorithm>
#include <limits>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kMaxExperts = static_cast<int>(kMaxCudaExperts);

struct RouteArgs {
  int num_experts, top_k;
  bool is_sigmoid, renormalize;
  float scale;
  const float* bias;  // or null
  int num_groups, top_groups, group_best;
  bool is_sparse_mixer;
  float jitter;
  const float* expert_scale;  // or null
};

// The lane's index of the first of the largest keys in [begin, end), joined over the warp. NaN is
// never larger; -1 if all of them are taken, which is -inf.
__device__ int BestOfWarp(const float* keys, int begin, int end, int lane) {
  int best = -1;
  for (int e = begin + lane; e < end; e += kWarpSize) {
    if (keys[e] == -INFINITY) continue;
    if (best < 0 || keys[e] > keys[best]) best = e;
  }
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const int other = __shfl_xor_sync(kAllLanes, best, mask);
    if (other < 0) continue;
    const bool is_better =
        best < 0 || keys[other] > keys[best] || (!(keys[other] < keys[best]) && other < best);
    if (is_better) best = other;
  }
  return __shfl_sync(kAllLanes, best, 0);
}

// Keys outside the best groups become -inf. A lane has the groups lane, lane + 32, ...
__device__ void HideGroups(float* keys, float* groups, const RouteArgs& args, int lane) {
  const int size = args.num_experts / args.num_groups;
  for (int g = lane; g < args.num_groups; g += kWarpSize) {
    const float* own = keys + g * size;
    int best = 0, second = -1;
    for (int e = 1; e < size; ++e) {
      if (own[e] > own[best]) {
        second = best;
        best = e;
      } else if (second < 0 || own[e] > own[second]) {
        second = e;
      }
    }
    groups[g] = args.group_best == 2 ? own[best] + own[second] : own[best];
  }
  __syncwarp();
  for (int i = 0; i < args.top_groups; ++i) {
    const int best = BestOfWarp(groups, 0, args.num_groups, lane);
    __syncwarp();
    if (lane == 0 && best >= 0) groups[best] = -INFINITY;
    __syncwarp();
  }
  for (int e = lane; e < args.num_experts; e += kWarpSize) {
    if (groups[e / size] != -INFINITY) keys[e] = -INFINITY;
  }
}

// `left`: the logits, -inf once chosen.
__device__ void MixSparsely(const float* logits, float* left, const RouteArgs& args, int lane,
                            int32_t* expert_ids, float* weights) {
  for (int e = lane; e < args.num_experts; e += kWarpSize) left[e] = logits[e];
  for (int k = 0; k < 2; ++k) {
    __syncwarp();
    const int found = BestOfWarp(left, 0, args.num_experts, lane);
    const int best = found < 0 ? 0 : found;
    const float max = left[best];
    float sum = 0;
    for (int e = lane; e < args.num_experts; e += kWarpSize) {
      const bool is_far = (max - logits[e]) / fmaxf(fabsf(logits[e]), max) > 2 * args.jitter;
      if (!is_far) sum += expf(left[e] - max);
    }
    sum = WarpSum(sum);
    __syncwarp();
    if (lane == 0) {
      left[best] = -INFINITY;
      expert_ids[k] = best;
      weights[k] = 1 / sum;
    }
  }
}

// One warp per token.
__global__ void RouteTopKKernel(int32_t* expert_ids, int64_t ids_stride, float* weights,
                                int64_t weights_stride, const float* logits, int64_t logits_stride,
                                RouteArgs args) {
  WaitForPreviousKernel();
  __shared__ float scores[kMaxExperts];
  __shared__ float keys[kMaxExperts];  // what is chosen by; -inf once chosen
  __shared__ float groups[kMaxExperts];
  const int lane = static_cast<int>(threadIdx.x);
  logits += blockIdx.x * logits_stride;
  expert_ids += blockIdx.x * ids_stride;
  weights += blockIdx.x * weights_stride;
  if (args.is_sparse_mixer) return MixSparsely(logits, keys, args, lane, expert_ids, weights);
  float max = -INFINITY;
  for (int e = lane; e < args.num_experts; e += kWarpSize) max = fmaxf(max, logits[e]);
  max = WarpMax(max);
  float sum = 0;
  for (int e = lane; e < args.num_experts; e += kWarpSize) {
    sum += scores[e] = args.is_sigmoid ? 1 / (1 + expf(-logits[e])) : expf(logits[e] - max);
  }
  sum = args.is_sigmoid ? 1 : WarpSum(sum);
  for (int e = lane; e < args.num_experts; e += kWarpSize) {
    scores[e] /= sum;
    keys[e] = args.bias == nullptr ? scores[e] : scores[e] + args.bias[e];
  }
  __syncwarp();
  if (args.num_groups > 1) HideGroups(keys, groups, args, lane);
  float kept = 0;
  for (int k = 0; k < args.top_k; ++k) {
    __syncwarp();
    const int found = BestOfWarp(keys, 0, args.num_experts, lane);
    const int best = found < 0 ? 0 : found;
    const float score = scores[best];
    kept += score;
    __syncwarp();
    if (lane == 0) {
      keys[best] = -INFINITY;
      expert_ids[k] = best;
      weights[k] = score;
    }
  }
  __syncwarp();
  for (int k = lane; k < args.top_k; k += kWarpSize) {
    if (args.renormalize) weights[k] /= kept + 1e-20f;
    weights[k] *= args.scale;
    if (args.expert_scale != nullptr) weights[k] *= args.expert_scale[expert_ids[k]];
  }
}

struct PairPlaces {
  int32_t* begin;
  int32_t* chosen;
  int32_t* tokens;
  int32_t* of_token;
  float* weights;
  int64_t of_token_stride, weights_stride;
};

struct ChosenExperts {
  const int32_t* ids;
  const float* weights;
  int64_t ids_stride, weights_stride;
  int num_pairs, top_k;
};

// A block per expert looks at all pairs and counts those of lower experts: no block waits for
// another, and the order does not depend on which block runs first. Each warp has a range of the
// pairs (t, k), by rising t.
__global__ void GroupByExpertKernel(PairPlaces out, ChosenExperts in, int num_experts) {
  WaitForPreviousKernel();
  __shared__ unsigned is_chosen[kMaxExperts / kWarpSize];
  __shared__ int num_lower[kWarps], num_own[kWarps];
  const int expert = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  for (int i = static_cast<int>(threadIdx.x); i < kMaxExperts / kWarpSize; i += kThreads) {
    is_chosen[i] = 0;
  }
  __syncthreads();
  const int per_warp = (in.num_pairs / kWarps / kWarpSize + 1) * kWarpSize;
  const int first = std::min(warp * per_warp, in.num_pairs),
            last = std::min(first + per_warp, in.num_pairs);
  const auto id_of = [&](int pair) {
    return pair < last ? in.ids[pair / in.top_k * in.ids_stride + pair % in.top_k] : num_experts;
  };
  int lower = 0, own = 0;
  for (int base = first; base < last; base += kWarpSize) {
    const int id = id_of(base + lane);
    lower += __popc(__ballot_sync(kAllLanes, id < expert));
    own += __popc(__ballot_sync(kAllLanes, id == expert));
    if (id < num_experts) atomicOr(&is_chosen[id / kWarpSize], 1u << id % kWarpSize);
  }
  if (lane == 0) {
    num_lower[warp] = lower;
    num_own[warp] = own;
  }
  __syncthreads();

  int begin = 0, count = 0, pair = 0;  // `pair`: this warp's first
  for (int w = 0; w < kWarps; ++w) {
    begin += num_lower[w];
    if (w < warp) pair += num_own[w];
    count += num_own[w];
  }
  pair += begin;
  if (threadIdx.x == 0) {
    out.begin[expert] = begin;
    if (expert == num_experts - 1) out.begin[num_experts] = begin + count;
  }
  int num_chosen_before = 0, num_chosen = 0;
  for (int word = 0; word * kWarpSize < num_experts; ++word) {
    const unsigned bits = is_chosen[word];
    num_chosen += __popc(bits);
    const int below = expert - word * kWarpSize;
    if (below > 0)
      num_chosen_before += __popc(below < kWarpSize ? bits & ((1u << below) - 1) : bits);
  }
  if (threadIdx.x == 0) {
    if (count > 0) out.chosen[num_chosen_before] = expert;
    if (expert >= num_chosen) out.chosen[expert] = -1;
  }

  for (int base = first; base < last; base += kWarpSize) {
    const int at = base + lane;
    const bool is_own = id_of(at) == expert;
    const unsigned owners = __ballot_sync(kAllLanes, is_own);
    if (is_own) {
      const int place = pair + __popc(owners & ((1u << lane) - 1));
      const int64_t token = at / in.top_k;
      int rank = 0;
      for (int k = 0; k < in.top_k; ++k) rank += in.ids[token * in.ids_stride + k] < expert;
      out.tokens[place] = static_cast<int32_t>(token);
      out.of_token[token * out.of_token_stride + rank] = place;
      out.weights[token * out.weights_stride + rank] =
          in.weights[token * in.weights_stride + at % in.top_k];
    }
    pair += __popc(owners);
  }
}

// One block per kThreads numbers of a row.
template <class X>
__global__ void AddWeightedRowsKernel(float* residual, int64_t residual_stride, const X* x,
                                      int64_t x_stride, const int32_t* rows, int64_t rows_stride,
                                      const float* weights, int64_t weights_stride, int num_rows,
                                      int64_t hidden) {
  WaitForPreviousKernel();
  const int64_t h = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (h >= hidden) return;
  rows += blockIdx.x * rows_stride;
  weights += blockIdx.x * weights_stride;
  residual += blockIdx.x * residual_stride + h;
  float sum = *residual;
#pragma unroll 4
  for (int k = 0; k < num_rows; ++k) sum += weights[k] * LoadFloat(x + rows[k] * x_stride + h);
  *residual = sum;
}

// One block per kThreads numbers of a row.
template <class X>
__global__ void ScaleRowsKernel(X* x, int64_t stride, const float* weights, int64_t weights_stride,
                                const int32_t* rows, int64_t hidden) {
  WaitForPreviousKernel();
  const int64_t h = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (h >= hidden) return;
  X* at = x + blockIdx.x * stride + h;
  StoreFloat(at, LoadFloat(at) * weights[rows[blockIdx.x] * weights_stride]);
}

}  // namespace

void CudaOps::DoRouteTopK(const Tensor& expert_ids, const Tensor& weights, const Tensor& logits,
                          const RouteOptions& options) {
  CHECK_LE(logits.shape[1], kMaxCudaExperts);
  const RouteArgs args = {
      .num_experts = static_cast<int>(logits.shape[1]),
      .top_k = static_cast<int>(expert_ids.shape[1]),
      .is_sigmoid = options.score == RouterScore::kSigmoid,
      .renormalize = options.renormalize,
      .scale = options.scale,
      .bias = options.bias.empty() ? nullptr : options.bias.Data<float>(),
      .num_groups = options.num_groups,
      .top_groups = options.top_groups,
      .group_best = options.group_best,
      .is_sparse_mixer = options.score == RouterScore::kSparseMixer,
      .jitter = options.jitter,
      .expert_scale = options.expert_scale.empty() ? nullptr : options.expert_scale.Data<float>()};
  Launch(queue(), static_cast<unsigned>(logits.rows()), kWarpSize, RouteTopKKernel,
         expert_ids.Data<int32_t>(), expert_ids.row_stride, weights.Data<float>(),
         weights.row_stride, logits.Data<float>(), logits.row_stride, args);
}

void CudaOps::DoGroupByExpert(const ExpertPairs& pairs, const Tensor& expert_ids,
                              const Tensor& weights) {
  const int64_t num_experts = pairs.chosen.rows(), num_pairs = pairs.tokens.rows();
  CHECK_LE(num_experts, kMaxCudaExperts);
  CHECK_LE(num_pairs, std::numeric_limits<int32_t>::max() / 2);
  const PairPlaces places = {.begin = pairs.begin.Data<int32_t>(),
                             .chosen = pairs.chosen.Data<int32_t>(),
                             .tokens = pairs.tokens.Data<int32_t>(),
                             .of_token = pairs.of_token.Data<int32_t>(),
                             .weights = pairs.weights.Data<float>(),
                             .of_token_stride = pairs.of_token.row_stride,
                             .weights_stride = pairs.weights.row_stride};
  const ChosenExperts chosen = {.ids = expert_ids.Data<int32_t>(),
                                .weights = weights.Data<float>(),
                                .ids_stride = expert_ids.row_stride,
                                .weights_stride = weights.row_stride,
                                .num_pairs = static_cast<int>(num_pairs),
                                .top_k = static_cast<int>(expert_ids.shape[1])};
  Launch(queue(), static_cast<unsigned>(num_experts), kThreads, GroupByExpertKernel, places, chosen,
         static_cast<int>(num_experts));
  if (IsForExpertKernels(num_pairs, num_experts)) return;
  device_->StartCopyOut(expert_begin_.view().Rows(0, num_experts + 1), pairs.begin);
  expert_begin_copied_ = device_->SetMark();
}

void CudaOps::DoScaleRows(const Tensor& x, const Tensor& weights, const Tensor& rows) {
  const dim3 grid(static_cast<unsigned>(x.rows()),
                  static_cast<unsigned>((x.shape[1] + kThreads - 1) / kThreads));
  WithType(x, [&]<class X>(X* x_data) {
    Launch(queue(), grid, kThreads, ScaleRowsKernel<X>, x_data, x.row_stride, weights.Data<float>(),
           weights.row_stride, rows.Data<int32_t>(), x.shape[1]);
  });
}

void CudaOps::DoAddWeightedRows(const Tensor& residual, const Tensor& x, const Tensor& rows,
                                const Tensor& weights) {
  // Rows are dimension x of the grid: y and z are limited to 65535.
  const dim3 grid(static_cast<unsigned>(residual.rows()),
                  static_cast<unsigned>((x.shape[1] + kThreads - 1) / kThreads));
  WithType(x, [&]<class X>(const X* x_data) {
    Launch(queue(), grid, kThreads, AddWeightedRowsKernel<X>, residual.Data<float>(),
           residual.row_stride, x_data, x.row_stride, rows.Data<int32_t>(), rows.row_stride,
           weights.Data<float>(), weights.row_stride, static_cast<int>(rows.shape[1]), x.shape[1]);
  });
}

}  // namespace tandem
