#pragma once

// FlashInfer's decode kernel over our batch. Device code; included by the sources per head size.

#include <flashinfer/utils.cuh>

// FlashInfer instantiates the decode kernel for every group size and stage count. Here only those
// of FlashInferDecodes on devices from sm_80 on are: a quarter of the code.
#undef DISPATCH_GQA_GROUP_SIZE
#define DISPATCH_GQA_GROUP_SIZE(group_size, GROUP_SIZE, ...) \
  switch (group_size) {                                      \
    case 1: {                                                \
      constexpr size_t GROUP_SIZE = 1;                       \
      __VA_ARGS__                                            \
      break;                                                 \
    }                                                        \
    case 2: {                                                \
      constexpr size_t GROUP_SIZE = 2;                       \
      __VA_ARGS__                                            \
      break;                                                 \
    }                                                        \
    case 3: {                                                \
      constexpr size_t GROUP_SIZE = 3;                       \
      __VA_ARGS__                                            \
      break;                                                 \
    }                                                        \
    case 4: {                                                \
      constexpr size_t GROUP_SIZE = 4;                       \
      __VA_ARGS__                                            \
      break;                                                 \
    }                                                        \
    default:                                                 \
      return cudaErrorInvalidValue;                          \
  }
#undef DISPATCH_COMPUTE_CAP_DECODE_NUM_STAGES_SMEM
#define DISPATCH_COMPUTE_CAP_DECODE_NUM_STAGES_SMEM(compute_capacity, NUM_STAGES_SMEM, ...) \
  {                                                                                         \
    static_cast<void>(compute_capacity);                                                    \
    constexpr uint32_t NUM_STAGES_SMEM = 2;                                                 \
    __VA_ARGS__                                                                             \
  }

#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/scheduler.cuh>

#include "kernels/cuda/flashinfer/variant.cuh"

namespace tandem {

// With the names that the kernel reads.
struct FlashInferDecodeParams {
  using DTypeQ = __nv_bfloat16;
  using DTypeKV = __nv_bfloat16;
  using DTypeO = __nv_bfloat16;
  using IdType = int32_t;

  const DTypeQ* q;
  FlashInferPages paged_kv;
  DTypeO* o;
  float* lse;
  uint32_t padded_batch_size;
  uint32_t num_qo_heads;
  IdType q_stride_n;
  IdType q_stride_h;
  int32_t window_left;
  float logits_soft_cap;
  float sm_scale;
  const IdType* request_indices;
  const IdType* kv_tile_indices;
  IdType* o_indptr;
  const IdType* kv_chunk_size_ptr;
  const bool* block_valid_mask;
  bool partition_kv;

  __host__ __device__ int32_t get_qo_len(int32_t) const { return 1; }
  __host__ __device__ int32_t get_kv_len(int32_t request) const {
    return paged_kv.get_length(request);
  }
};

template <int kHeadDim, bool kCapped>
cudaError_t FlashInferDecode(cudaStream_t stream, const FlashInferCall& call) {
  FlashInferDecodeParams params = {};
  params.q = static_cast<const __nv_bfloat16*>(call.q);
  params.paged_kv = FlashInferPages(call);
  params.o = static_cast<__nv_bfloat16*>(call.out);
  params.padded_batch_size = static_cast<uint32_t>(call.num_blocks);
  params.num_qo_heads = static_cast<uint32_t>(call.num_heads);
  params.q_stride_n = static_cast<int32_t>(call.q_stride);
  params.q_stride_h = kHeadDim;
  params.window_left = call.sliding_window - 1;
  params.logits_soft_cap = call.soft_cap;
  params.sm_scale = call.scale;
  params.request_indices = call.request;
  params.kv_tile_indices = call.chunk;
  params.o_indptr = const_cast<int32_t*>(call.partial_start);
  params.kv_chunk_size_ptr = call.chunk_size;
  params.block_valid_mask = call.is_used;
  return flashinfer::BatchDecodeWithPagedKVCacheDispatched<
      kHeadDim, flashinfer::PosEncodingMode::kNone, FlashInferVariant<kCapped>>(
      params, static_cast<__nv_bfloat16*>(call.partial), call.partial_lse, /*enable_pdl=*/false,
      stream);
}

// FlashInfer's own estimate, for one request of one page.
template <int kHeadDim>
cudaError_t FlashInferDecodeBlocksOf(int num_heads, int num_kv_heads, int64_t* blocks) {
  bool split_kv = false;
  uint32_t max_blocks = 0, max_pages = 0, num_blocks = 0, grid_y = 0;
  int32_t page_start[] = {0, 1};
  const auto group = static_cast<uint32_t>(num_heads / num_kv_heads);
  const auto estimate = [&]() -> cudaError_t {
    DISPATCH_GQA_GROUP_SIZE(group, kGroup, {
      return flashinfer::BatchDecodeWithPagedKVCacheWorkEstimationDispatched<
          kGroup, kHeadDim, flashinfer::PosEncodingMode::kNone, FlashInferVariant<false>,
          FlashInferDecodeParams>(split_kv, max_blocks, max_pages, num_blocks, grid_y, 1,
                                  page_start, static_cast<uint32_t>(num_heads), 1, false, nullptr);
    });
    return cudaErrorInvalidValue;
  };
  const cudaError_t error = estimate();
  *blocks = max_blocks;
  return error;
}

}  // namespace tandem
