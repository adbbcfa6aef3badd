#pragma once

// The seam to FlashInfer's attention kernels: one launch over some consecutive requests of a batch,
// with the numbers of plan.h. Three implementations: FlashInfer if its headers were found
// (flashinfer.cc), absent.cc if not, and plain loops in the tests.
// Thread: engine loop. Ownership: everything is borrowed, device memory until the launch is done.
// Failure: a launch that CUDA or FlashInfer refuses is a Status.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/status.h"

namespace tandem {

// Types are bf16; H: query heads, d: head_dim. Pages are the blocks of the KV cache,
// [page][kv_head][token][d], K and V apart.
struct FlashInferCall {
  // The op's arguments.
  void* out = nullptr;      // [tokens, H, d], the launch's first token first
  const void* q = nullptr;  // likewise, rows q_stride apart
  int64_t q_stride = 0;     // elements
  const void* k = nullptr;
  const void* v = nullptr;
  const int32_t* pages = nullptr;  // the whole block table
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int block_size = 0;
  float scale = 0;
  int32_t sliding_window = 0;  // 0: all
  float soft_cap = 0;          // 0: none

  // The launch's; arrays on the device.
  int64_t tile_rows = 0;  // rows (query, head) of a block: 16, 64 or 128; 0: the decode kernel
  int64_t num_requests = 0;
  int64_t num_tokens = 0;
  int64_t num_blocks = 0;
  const int32_t* page_start = nullptr;   // [requests + 1], into pages
  const int32_t* context_len = nullptr;  // [requests]
  const int32_t* query_start = nullptr;  // [requests + 1], in the launch's tokens; decode: unused
  const int32_t* request = nullptr;      // [blocks]
  const int32_t* query_tile = nullptr;   // [blocks]; decode: unused
  const int32_t* chunk = nullptr;        // [blocks], which part of the context
  const bool* is_used = nullptr;         // [blocks]; null: all are
  const int32_t* chunk_size = nullptr;   // [1], keys
  // If contexts are split: partial results and how they are joined. Null: they are not.
  void* partial = nullptr;                 // [partial rows, H, d]
  float* partial_lse = nullptr;            // [partial rows, H]
  const int32_t* partial_start = nullptr;  // [requests + 1], a request's first partial row
  const int32_t* merge_start = nullptr;    // [tokens + 1], a token's; decode: unused
};

// Blocks of the decode kernel that the device runs at once. REQUIRES: FlashInferTakes the shape.
StatusOr<int64_t> FlashInferDecodeBlocks(int num_heads, int num_kv_heads, int head_dim);

Status LaunchFlashInfer(cudaStream_t stream, const FlashInferCall& call);

}  // namespace tandem
