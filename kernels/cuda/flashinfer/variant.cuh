#pragma once

// Shared by FlashInfer's decode and prefill kernels: where keys are, and which of them a query
// sees. Device code.

#include <cuda_bf16.h>

#include <flashinfer/attention/variants.cuh>
#include <flashinfer/page.cuh>

#include "kernels/cuda/flashinfer/flashinfer.h"

namespace tandem {

// A window of any size (none where window_left is negative), chosen at run time.
template <bool kCapped>
using FlashInferVariant =
    flashinfer::DefaultAttention</*use_custom_mask=*/false, /*use_sliding_window=*/true, kCapped,
                                 /*use_alibi=*/false>;

// FlashInfer derives a request's length from its pages, which must then be packed. Our block tables
// are rows of equal length with unused entries at the end, so the length is an argument of its own.
struct FlashInferPages : flashinfer::paged_kv_t<__nv_bfloat16, int32_t> {
  const int32_t* context_len = nullptr;

  FlashInferPages() = default;
  explicit FlashInferPages(const FlashInferCall& call)
      : paged_kv_t(static_cast<uint32_t>(call.num_kv_heads), static_cast<uint32_t>(call.block_size),
                   static_cast<uint32_t>(call.head_dim), static_cast<uint32_t>(call.num_requests),
                   flashinfer::QKVLayout::kHND,
                   static_cast<__nv_bfloat16*>(const_cast<void*>(call.k)),
                   static_cast<__nv_bfloat16*>(const_cast<void*>(call.v)),
                   const_cast<int32_t*>(call.pages), const_cast<int32_t*>(call.page_start),
                   /*last_page_len=*/nullptr),
        context_len(call.context_len) {}

  __host__ __device__ uint32_t get_length(uint32_t request) const {
    return static_cast<uint32_t>(context_len[request]);
  }
};

}  // namespace tandem
