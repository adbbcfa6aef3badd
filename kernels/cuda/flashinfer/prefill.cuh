#pragma once

// FlashInfer's prefill kernel (FlashAttention-2 on tensor cores) over our batch. Device code;
// included by the sources per head size.

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>

#include "kernels/cuda/flashinfer/variant.cuh"

namespace tandem {

struct FlashInferPrefillParams
    : flashinfer::BatchPrefillPagedParams<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, int32_t> {
  const int32_t* context_len = nullptr;

  __host__ __device__ uint32_t get_kv_len(uint32_t request) const {
    return static_cast<uint32_t>(context_len[request]);
  }
};

template <int kHeadDim, bool kCapped>
cudaError_t FlashInferPrefill(cudaStream_t stream, const FlashInferCall& call) {
  FlashInferPrefillParams params;
  params.q = static_cast<__nv_bfloat16*>(const_cast<void*>(call.q));
  params.paged_kv = FlashInferPages(call);
  params.context_len = call.context_len;
  params.q_indptr = const_cast<int32_t*>(call.query_start);
  params.o = static_cast<__nv_bfloat16*>(call.out);
  params.group_size = flashinfer::uint_fastdiv(call.num_heads / call.num_kv_heads);
  params.num_qo_heads = static_cast<uint32_t>(call.num_heads);
  params.q_stride_n = static_cast<int32_t>(call.q_stride);
  params.q_stride_h = kHeadDim;
  params.window_left = call.sliding_window - 1;
  params.logits_soft_cap = call.soft_cap;
  params.sm_scale = call.scale;
  params.request_indices = const_cast<int32_t*>(call.request);
  params.qo_tile_indices = const_cast<int32_t*>(call.query_tile);
  params.kv_tile_indices = const_cast<int32_t*>(call.chunk);
  const bool is_split = call.partial != nullptr;
  params.o_indptr = const_cast<int32_t*>(is_split ? call.partial_start : call.query_start);
  params.merge_indptr = const_cast<int32_t*>(call.merge_start);
  params.block_valid_mask = const_cast<bool*>(call.is_used);
  params.kv_chunk_size_ptr = const_cast<int32_t*>(call.chunk_size);
  params.max_total_num_rows = static_cast<uint32_t>(call.num_tokens);
  params.padded_batch_size = static_cast<uint32_t>(call.num_blocks);
  const auto run = [&]<uint32_t kTileRows>() {
    return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
        /*SAME_KV_STRIDES=*/true, kTileRows, kHeadDim, kHeadDim, flashinfer::PosEncodingMode::kNone,
        /*USE_FP16_QK_REDUCTION=*/false, flashinfer::MaskMode::kCausal, FlashInferVariant<kCapped>>(
        params, static_cast<__nv_bfloat16*>(call.partial), call.partial_lse, /*enable_pdl=*/false,
        stream);
  };
  if (call.tile_rows == 16) return run.template operator()<16>();
  if (call.tile_rows == 64) return run.template operator()<64>();
  if constexpr (kHeadDim < 256) {  // 256 leaves no registers for more rows
    if (call.tile_rows == 128) return run.template operator()<128>();
  }
  return cudaErrorInvalidValue;
}

}  // namespace tandem
