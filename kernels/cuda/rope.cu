// Norm of q and k per head, RoPE, and the write of K and V to the cache, in one pass.

#include <type_traits>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kHeadsPerBlock = 4;  // one warp each
constexpr int kLanePairs = 4;      // of a lane: heads have up to 256 numbers

struct RopeArgs {
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int rotary_dim;
  int block_size;
  float epsilon;
  const float* cos;  // [., rotary_dim / 2]
  const float* sin;
  const float* q_norm;  // or null
  const float* k_norm;
  bool norms_after_rope;
  bool is_interleaved;
  const float* q_scale;  // [.], or null
  const int32_t* positions;
  const int32_t* slots;
  float k_scale, v_scale;  // of a cache in float8, else 1
};

// A head of q or k, normed and turned; `finish` makes of its numbers what is stored. By one warp,
// which is bound by the time from a load to its number: everything is read before anything is used.
template <class To, class X, class Finish>
__device__ inline void WriteTurned(To* to, const X* x, const float* norm, int64_t token, int lane,
                                   const RopeArgs& args, Finish finish) {
  const int half = args.rotary_dim / 2;
  const auto first_of = [&](int i) { return args.is_interleaved ? 2 * i : i; };
  const auto second_of = [&](int i) { return args.is_interleaved ? 2 * i + 1 : i + half; };
  float firsts[kLanePairs], seconds[kLanePairs], coses[kLanePairs], sins[kLanePairs];
#pragma unroll
  for (int p = 0; p < kLanePairs; ++p) {
    const int i = p * kWarpSize + lane;
    firsts[p] = i < half ? LoadFloat(x + first_of(i)) : 0;
    seconds[p] = i < half ? LoadFloat(x + second_of(i)) : 0;
  }
  const int64_t angles = half == 0 ? 0 : int64_t{args.positions[token]} * half;
#pragma unroll
  for (int p = 0; p < kLanePairs; ++p) {
    const int i = p * kWarpSize + lane;
    coses[p] = i < half ? args.cos[angles + i] : 0;
    sins[p] = i < half ? args.sin[angles + i] : 0;
  }
  // Rotation leaves the length of a head as it is, so a norm after it has the same scale.
  float scale = 1;
  if (norm != nullptr) {
    float squares = 0;
#pragma unroll
    for (int p = 0; p < kLanePairs; ++p) {
      squares += firsts[p] * firsts[p] + seconds[p] * seconds[p];
    }
    for (int i = args.rotary_dim + lane; i < args.head_dim; i += kWarpSize) {
      squares += LoadFloat(x + i) * LoadFloat(x + i);
    }
    scale = rsqrtf(WarpSum(squares) / static_cast<float>(args.head_dim) + args.epsilon);
  }
  const auto normed = [&](int i, float value) {
    return norm == nullptr || args.norms_after_rope ? value : value * scale * norm[i];
  };
  const auto store = [&](int i, float value) {
    if (args.norms_after_rope && norm != nullptr) value *= scale * norm[i];
    StoreFloat(to + i, finish(value));
  };
#pragma unroll
  for (int p = 0; p < kLanePairs; ++p) {
    const int i = p * kWarpSize + lane;
    if (i >= half) break;
    const float a = normed(first_of(i), firsts[p]), b = normed(second_of(i), seconds[p]);
    store(first_of(i), a * coses[p] - b * sins[p]);
    store(second_of(i), b * coses[p] + a * sins[p]);
  }
  for (int i = args.rotary_dim + lane; i < args.head_dim; i += kWarpSize) {
    store(i, normed(i, LoadFloat(x + i)));
  }
}

// A head of k or v to the row of a cache that has the layer's scales, or none. By one warp.
template <class X, class Kv>
__device__ inline void WriteHead(Kv* k_cache, Kv* v_cache, int64_t row, const X* x, bool is_v,
                                 int64_t token, int lane, const RopeArgs& args) {
  if (!is_v) {
    const float k_scale = args.k_scale;
    WriteTurned(k_cache + row * args.head_dim, x, args.k_norm, token, lane, args,
                [k_scale](float value) { return value / k_scale; });
    return;
  }
  Kv* const to = v_cache + row * args.head_dim;
  float numbers[2 * kLanePairs];
#pragma unroll
  for (int n = 0; n < 2 * kLanePairs; ++n) {
    const int i = n * kWarpSize + lane;
    numbers[n] = i < args.head_dim ? LoadFloat(x + i) : 0;
  }
#pragma unroll
  for (int n = 0; n < 2 * kLanePairs; ++n) {
    const int i = n * kWarpSize + lane;
    if (i < args.head_dim) StoreFloat(to + i, numbers[n] / args.v_scale);
  }
}

// Rounds a head, which the lanes of this warp have just written, to int8 with its scale. One that
// is not finite becomes zeros with NaN.
__device__ inline void WriteInt8Head(Int8* to, const float* head, int dim, int lane) {
  __syncwarp();
  float max = 0, poison = 0;
  for (int i = lane; i < dim; i += kWarpSize) {
    max = fmaxf(max, fabsf(head[i]));
    poison += head[i] * 0;  // NaN of infinity and NaN
  }
  max = WarpMax<kWarpSize>(max);
  poison = WarpSum(poison);
  const float inverse = 127 / max;  // infinite when there is nothing to scale
  const bool is_usable = poison == 0 && inverse < INFINITY;
  for (int i = lane; i < dim; i += kWarpSize) {
    to[i].code = is_usable ? static_cast<int8_t>(rintf(head[i] * inverse)) : 0;
  }
  if (lane != 0) return;
  *reinterpret_cast<float*>(to + dim) = is_usable ? max / 127 : poison;
}

// One warp per head of q, then k, then v of a token. Kv: of the cache.
template <class T, class X, class Kv>
__global__ void RopeKernel(T* out, int64_t out_stride, const X* qkv, int64_t qkv_stride,
                           Kv* k_cache, Kv* v_cache, RopeArgs args) {
  WaitForPreviousKernel();
  const int head = static_cast<int>(blockIdx.y * kHeadsPerBlock + threadIdx.x / kWarpSize);
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  const int num_qk_heads = args.num_heads + args.num_kv_heads;
  if (head >= num_qk_heads + args.num_kv_heads) return;
  const int64_t token = blockIdx.x;
  const X* x = qkv + token * qkv_stride + int64_t{head} * args.head_dim;

  const bool is_q = head < args.num_heads, is_v = head >= num_qk_heads;
  if (is_q) {
    T* const to = out + token * out_stride + int64_t{head} * args.head_dim;
    const float q_scale = args.q_scale != nullptr ? args.q_scale[args.positions[token]] : 1;
    WriteTurned(to, x, args.q_norm, token, lane, args,
                [q_scale](float value) { return value * q_scale; });
    return;
  }
  const int slot = args.slots[token];
  if (slot < 0) return;  // padding
  const int kv_head = is_v ? head - num_qk_heads : head - args.num_heads;
  const int64_t row =
      (int64_t{slot / args.block_size} * args.num_kv_heads + kv_head) * args.block_size +
      slot % args.block_size;
  if constexpr (std::is_same_v<Kv, Int8>) {
    __shared__ float heads[kHeadsPerBlock][2 * kLanePairs * kWarpSize];
    float* const numbers = heads[threadIdx.x / kWarpSize];
    if (is_v) {
      for (int i = lane; i < args.head_dim; i += kWarpSize) numbers[i] = LoadFloat(x + i);
    } else {
      WriteTurned(numbers, x, args.k_norm, token, lane, args, [](float value) { return value; });
    }
    Int8* const to = (is_v ? v_cache : k_cache) + row * (args.head_dim + kInt8ScaleBytes);
    return WriteInt8Head(to, numbers, args.head_dim, lane);
  } else {
    WriteHead(k_cache, v_cache, row, x, is_v, token, lane, args);
  }
}

struct LatentArgs {
  int num_heads;
  int head_dim;
  int q_dim;
  int pe_dim;
  bool is_interleaved;
  float epsilon;
  const float* cos;  // [., pe_dim / 2], or null
  const float* sin;
  const float* norm;  // [head_dim - pe_dim]
  const int32_t* positions;
  const int32_t* slots;
};

// One warp per query head of a token, and one for its latent, which comes last.
template <class T>
__global__ void LatentRopeKernel(T* out, int64_t out_stride, const T* q, int64_t q_stride,
                                 const T* latent, int64_t latent_stride, T* cache,
                                 LatentArgs args) {
  WaitForPreviousKernel();
  const int head = static_cast<int>(blockIdx.y * kHeadsPerBlock + threadIdx.x / kWarpSize);
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  if (head > args.num_heads) return;
  const int64_t token = blockIdx.x;
  const int c_dim = args.head_dim - args.pe_dim;
  const T* pe = q + token * q_stride + int64_t{head + 1} * args.q_dim - args.pe_dim;
  T* to = out + token * out_stride + int64_t{head} * args.head_dim + c_dim;
  if (head == args.num_heads) {
    const int slot = args.slots[token];
    if (slot < 0) return;  // padding
    const T* c = latent + token * latent_stride;
    T* row = cache + int64_t{slot} * args.head_dim;
    float squares = 0;
    for (int i = lane; i < c_dim; i += kWarpSize) squares += LoadFloat(c + i) * LoadFloat(c + i);
    const float scale = rsqrtf(WarpSum(squares) / static_cast<float>(c_dim) + args.epsilon);
    for (int i = lane; i < c_dim; i += kWarpSize) {
      StoreFloat(row + i, LoadFloat(c + i) * scale * args.norm[i]);
    }
    pe = c + c_dim;
    to = row + c_dim;
  }
  const int half = args.pe_dim / 2;
  const int64_t angles = args.cos == nullptr ? 0 : int64_t{args.positions[token]} * half;
  for (int i = lane; i < half; i += kWarpSize) {
    const int first = args.is_interleaved ? 2 * i : i;
    const int second = args.is_interleaved ? 2 * i + 1 : i + half;
    const float cos = args.cos == nullptr ? 1 : args.cos[angles + i];
    const float sin = args.cos == nullptr ? 0 : args.sin[angles + i];
    const float a = LoadFloat(pe + first), b = LoadFloat(pe + second);
    StoreFloat(to + first, a * cos - b * sin);
    StoreFloat(to + second, b * cos + a * sin);
  }
}

const float* DataOrNull(const Tensor& x) { return x.empty() ? nullptr : x.Data<float>(); }

}  // namespace

void CudaOps::DoLatentRopeWriteKv(const Tensor& out, const Tensor& q, const Tensor& latent,
                                  const LatentRope& rope, const LayerKv& kv,
                                  const AttentionPlan& plan) {
  CHECK(rope.index_key.empty()) << "chosen keys are not built for CUDA";
  const int num_heads = static_cast<int>(out.shape[1]) / kv.head_dim;
  const LatentArgs args = {.num_heads = num_heads,
                           .head_dim = kv.head_dim,
                           .q_dim = static_cast<int>(q.shape[1]) / num_heads,
                           .pe_dim = rope.pe_dim,
                           .is_interleaved = rope.is_interleaved,
                           .epsilon = rope.norm_epsilon,
                           .cos = DataOrNull(rope.cos),
                           .sin = DataOrNull(rope.sin),
                           .norm = DataOrNull(rope.norm),
                           .positions = plan.batch().positions.Data<int32_t>(),
                           .slots = plan.batch().slot_mapping.Data<int32_t>()};
  const dim3 grid(static_cast<unsigned>(plan.num_tokens()),
                  static_cast<unsigned>((num_heads + kHeadsPerBlock) / kHeadsPerBlock));
  WithType(out, [&]<class T>(T* out_data) {
    Launch(queue(), grid, kHeadsPerBlock * kWarpSize, LatentRopeKernel<T>, out_data, out.row_stride,
           static_cast<const T*>(q.data), q.row_stride, static_cast<const T*>(latent.data),
           latent.row_stride, static_cast<T*>(kv.k), args);
  });
}

void CudaOps::DoQkNormRopeWriteKv(const Tensor& out, const Tensor& qkv, const QkRope& rope,
                                  const LayerKv& kv, const AttentionPlan& plan) {
  CHECK_LE(kv.head_dim, 2 * kLanePairs * kWarpSize);
  const Tensor& rows = rope.rows.empty() ? plan.batch().positions : rope.rows;
  const RopeArgs args = {.num_heads = static_cast<int>(out.shape[1]) / kv.head_dim,
                         .num_kv_heads = rope.is_of_q_alone ? 0 : kv.num_kv_heads,
                         .head_dim = kv.head_dim,
                         .rotary_dim = rope.rotary_dim,
                         .block_size = kv.block_size,
                         .epsilon = rope.norm_epsilon,
                         .cos = DataOrNull(rope.cos),
                         .sin = DataOrNull(rope.sin),
                         .q_norm = DataOrNull(rope.q_norm),
                         .k_norm = DataOrNull(rope.k_norm),
                         .norms_after_rope = rope.norms_after_rope,
                         .is_interleaved = rope.is_interleaved,
                         .q_scale = DataOrNull(rope.q_scale),
                         .positions = rows.Data<int32_t>(),
                         .slots = plan.batch().slot_mapping.Data<int32_t>(),
                         .k_scale = kv.k_scale,
                         .v_scale = kv.v_scale};
  const int heads = args.num_heads + 2 * args.num_kv_heads;
  const dim3 grid(static_cast<unsigned>(plan.num_tokens()),
                  static_cast<unsigned>((heads + kHeadsPerBlock - 1) / kHeadsPerBlock));
  WithTypes(out, qkv, [&]<class T, class X>(T* out_data, const X* qkv_data) {
    const auto launch = [&]<class Kv>(Kv* k, Kv* v) {
      Launch(queue(), grid, kHeadsPerBlock * kWarpSize, RopeKernel<T, X, Kv>, out_data,
             out.row_stride, qkv_data, qkv.row_stride, k, v, args);
    };
    if (kv.format == KvFormat::kFloat8) {
      return launch(static_cast<Float8*>(kv.k), static_cast<Float8*>(kv.v));
    }
    if (kv.format == KvFormat::kInt8) {
      return launch(static_cast<Int8*>(kv.k), static_cast<Int8*>(kv.v));
    }
    launch(static_cast<T*>(kv.k), static_cast<T*>(kv.v));
  });
}

}  // namespace tandem
