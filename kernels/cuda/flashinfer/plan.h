#pragma once

// How FlashInfer's kernels run a step's batch: the leading requests of one token in one launch, all
// others in a second one; contexts cut into chunks if there are too few blocks to fill the device;
// and the numbers that the kernels read. Plain C++, no device needed.
//
// A batch of one token per request makes a plan whose sizes and places follow from the number of
// requests alone, so captured launches find their numbers there at every replay: the grid is padded
// to what the device runs at once, and blocks beyond the chunks are marked unused.
//
// Thread: engine loop. Ownership: the words are the caller's. Failure: none; a batch that does not
// fit the words is our own mistake (CHECK).
// The kernels' layout is FlashInfer's own (flashinfer/attention/scheduler.cuh, 0.7), except that
// pages are the rows of our block table, unchanged.

#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace tandem {

// Whether there are kernels for that type and head size.
bool FlashInferTakes(DType dtype, const AttentionShape& shape);

// Whether queries of one token go to the decode kernel. It computes each query head by itself; with
// five or more heads per KV head that takes longer than reading the keys, and the prefill kernel,
// which uses tensor cores, is faster.
bool FlashInferDecodes(const AttentionShape& shape);

// What a plan depends on besides the batch: the model and the device.
struct FlashInferShape {
  AttentionShape attention;
  int64_t decode_blocks = 1;   // of the decode kernel that the device runs at once
  int64_t prefill_blocks = 1;  // of the prefill kernel; two per multiprocessor

  int group() const { return attention.num_heads / attention.num_kv_heads; }
};

// Places are in the plan's words.
struct FlashInferLaunch {
  int64_t tile_rows = 0;  // rows (query, head) of a block: 16, 64 or 128; 0: the decode kernel
  int64_t first_request = 0;
  int64_t num_requests = 0;
  int64_t first_token = 0;
  int64_t num_tokens = 0;
  int64_t num_blocks = 0;
  // Chunks 0 of all tiles come first. If the launch is made without the split they alone run, over
  // whole contexts. (Not for the decode kernel.)
  int64_t num_tiles = 0;
  bool is_split = false;
  bool is_padded = false;  // some blocks may be unused
  int64_t query_start = 0;
  int64_t request = 0;
  int64_t query_tile = 0;
  int64_t chunk = 0;
  int64_t is_used = 0;  // bytes
  int64_t chunk_size = 0;
  int64_t partial_start = 0;
  int64_t merge_start = 0;
};

struct FlashInferPlan {
  int64_t page_start = 0;   // [R + 1]
  int64_t context_len = 0;  // [R]
  FlashInferLaunch decode;  // none where num_requests is 0
  FlashInferLaunch prefill;
};

// Words (i32) for any batch of num_tokens and num_requests.
int64_t FlashInferWorkSize(const FlashInferShape& shape, int64_t num_tokens, int64_t num_requests);

// Most rows [H, d] of partial results that a launch writes.
int64_t FlashInferPartialRows(const FlashInferShape& shape);

FlashInferPlan PlanFlashInfer(const FlashInferShape& shape, const AttentionBatch& batch,
                              std::span<int32_t> words);

}  // namespace tandem
