#include "kernels/cuda/flashinfer/plan.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr int64_t kMinTileRows = 16;
constexpr int64_t kMaxTileRows = 128;
constexpr int64_t kChunkUnit = 128;  // keys; FlashInfer's own unit

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// FlashInfer's choice: tall tiles for long queries, as far as registers allow.
int64_t TileRows(int64_t mean_rows, int head_dim) {
  if (mean_rows > 64 && head_dim < 256) return kMaxTileRows;
  return mean_rows > 16 ? 64 : kMinTileRows;
}

int64_t MaxDecodeBlocks(const FlashInferShape& shape) {
  return std::max<int64_t>(1, shape.decode_blocks / shape.attention.num_kv_heads);
}
int64_t MaxPrefillBlocks(const FlashInferShape& shape) {
  return std::max<int64_t>(1, shape.prefill_blocks / shape.attention.num_kv_heads);
}

// Some consecutive requests of a batch.
struct Requests {
  const AttentionBatch& batch;
  int64_t begin;
  int64_t end;

  int64_t size() const { return end - begin; }
  int64_t num_queries(int64_t i) const {
    const auto r = static_cast<size_t>(begin + i);
    return batch.query_start[r + 1] - batch.query_start[r];
  }
  int64_t context_len(int64_t i) const { return batch.context_len[static_cast<size_t>(begin + i)]; }
  int64_t first_token() const { return batch.query_start[static_cast<size_t>(begin)]; }
  int64_t num_tokens() const { return batch.query_start[static_cast<size_t>(end)] - first_token(); }
};

// Hands out ranges of the words, one after another.
class Room {
 public:
  explicit Room(std::span<int32_t> words) : words_(words) {}
  int64_t Take(int64_t count) {
    const int64_t place = taken_;
    taken_ += count;
    CHECK_LE(taken_, static_cast<int64_t>(words_.size()));
    return place;
  }
  int32_t* at(int64_t place) const { return words_.data() + place; }

 private:
  std::span<int32_t> words_;
  int64_t taken_ = 0;
};

// The smallest chunk size that makes at most max_blocks chunks. REQUIRES: at most max_blocks tiles.
template <class Tiles>
int64_t ChunkSize(const Requests& requests, int64_t max_blocks, Tiles tiles) {
  int64_t longest = 1;
  for (int64_t i = 0; i < requests.size(); ++i) {
    longest = std::max(longest, requests.context_len(i));
  }
  int64_t low = 1, high = CeilDiv(longest, kChunkUnit);
  while (low < high) {
    const int64_t units = (low + high) / 2;
    int64_t blocks = 0;
    for (int64_t i = 0; i < requests.size(); ++i) {
      blocks += tiles(i) * CeilDiv(requests.context_len(i), units * kChunkUnit);
    }
    if (blocks > max_blocks) {
      low = units + 1;
    } else {
      high = units;
    }
  }
  return low * kChunkUnit;
}

void TakeBlocks(FlashInferLaunch* launch, int64_t num_blocks, Room* room) {
  launch->num_blocks = num_blocks;
  launch->request = room->Take(num_blocks);
  launch->query_tile = room->Take(num_blocks);
  launch->chunk = room->Take(num_blocks);
  launch->is_used = room->Take(CeilDiv(num_blocks, int64_t{sizeof(int32_t)}));
  launch->chunk_size = room->Take(1);
}

// Writes the launch's blocks, one call of Add each, and marks the rest as unused.
class BlockWriter {
 public:
  BlockWriter(const FlashInferLaunch& launch, const Room& room)
      : launch_(launch),
        request_(room.at(launch.request)),
        query_tile_(room.at(launch.query_tile)),
        chunk_(room.at(launch.chunk)),
        is_used_(reinterpret_cast<bool*>(room.at(launch.is_used))) {}
  ~BlockWriter() {
    while (count_ < launch_.num_blocks) Write(0, 0, 0, false);
  }
  void Add(int64_t request, int64_t query_tile, int64_t chunk) {
    CHECK_LT(count_, launch_.num_blocks);
    Write(request, query_tile, chunk, true);
  }

 private:
  void Write(int64_t request, int64_t query_tile, int64_t chunk, bool is_used) {
    request_[count_] = static_cast<int32_t>(request);
    query_tile_[count_] = static_cast<int32_t>(query_tile);
    chunk_[count_] = static_cast<int32_t>(chunk);
    is_used_[count_++] = is_used;
  }

  const FlashInferLaunch& launch_;
  int32_t* request_;
  int32_t* query_tile_;
  int32_t* chunk_;
  bool* is_used_;
  int64_t count_ = 0;
};

void SetRequests(const Requests& requests, FlashInferLaunch* launch) {
  launch->first_request = requests.begin;
  launch->num_requests = requests.size();
  launch->first_token = requests.first_token();
  launch->num_tokens = requests.num_tokens();
}

// Partial results are in the order of the blocks, so a request's chunks follow each other.
FlashInferLaunch PlanDecode(const FlashInferShape& shape, const Requests& requests, Room* room) {
  FlashInferLaunch launch;
  if (requests.size() == 0) return launch;
  SetRequests(requests, &launch);
  const int64_t max_blocks = std::max(requests.size(), MaxDecodeBlocks(shape));
  launch.is_split = launch.is_padded = max_blocks > requests.size();
  launch.num_tiles = requests.size();
  TakeBlocks(&launch, max_blocks, room);
  launch.partial_start = room->Take(requests.size() + 1);
  const int64_t chunk_size = ChunkSize(requests, max_blocks, [](int64_t) { return 1; });
  *room->at(launch.chunk_size) = static_cast<int32_t>(chunk_size);
  int32_t* partial_start = room->at(launch.partial_start);
  *partial_start = 0;
  BlockWriter blocks(launch, *room);
  for (int64_t i = 0; i < requests.size(); ++i) {
    const int64_t num_chunks = launch.is_split ? CeilDiv(requests.context_len(i), chunk_size) : 1;
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) blocks.Add(i, 0, chunk);
    partial_start[i + 1] = partial_start[i] + static_cast<int32_t>(num_chunks);
  }
  return launch;
}

// is_fixed: sizes follow from the number of requests and of tokens.
FlashInferLaunch PlanPrefill(const FlashInferShape& shape, const Requests& requests, bool is_fixed,
                             Room* room) {
  FlashInferLaunch launch;
  if (requests.size() == 0) return launch;
  SetRequests(requests, &launch);
  const int64_t group = shape.group();
  const int64_t mean_rows = launch.num_tokens * group / requests.size();
  launch.tile_rows = TileRows(mean_rows, shape.attention.head_dim);
  const auto tiles = [&](int64_t i) {
    return CeilDiv(requests.num_queries(i) * group, launch.tile_rows);
  };
  for (int64_t i = 0; i < requests.size(); ++i) launch.num_tiles += tiles(i);
  const int64_t max_blocks = std::max(launch.num_tiles, MaxPrefillBlocks(shape));
  const bool has_spare_blocks = max_blocks > launch.num_tiles;
  const int64_t chunk_size = ChunkSize(requests, max_blocks, tiles);
  const auto chunks = [&](int64_t i) {
    return has_spare_blocks ? CeilDiv(requests.context_len(i), chunk_size) : 1;
  };
  int64_t num_blocks = 0, most_chunks = 1;
  for (int64_t i = 0; i < requests.size(); ++i) {
    num_blocks += tiles(i) * chunks(i);
    most_chunks = std::max(most_chunks, chunks(i));
  }
  launch.is_split = is_fixed ? has_spare_blocks : most_chunks > 1;
  launch.is_padded = is_fixed && launch.is_split;
  TakeBlocks(&launch, launch.is_padded ? max_blocks : num_blocks, room);
  launch.query_start = room->Take(requests.size() + 1);
  launch.partial_start = room->Take(requests.size() + 1);
  launch.merge_start = room->Take(launch.num_tokens + 1);
  *room->at(launch.chunk_size) = static_cast<int32_t>(chunk_size);
  BlockWriter blocks(launch, *room);
  for (int64_t chunk = 0; chunk < most_chunks; ++chunk) {
    for (int64_t i = 0; i < requests.size(); ++i) {
      if (chunk >= chunks(i)) continue;
      for (int64_t tile = 0; tile < tiles(i); ++tile) blocks.Add(i, tile, chunk);
    }
  }
  int32_t* query_start = room->at(launch.query_start);
  int32_t* partial_start = room->at(launch.partial_start);
  int32_t* merge_start = room->at(launch.merge_start);
  *query_start = *partial_start = *merge_start = 0;
  for (int64_t i = 0; i < requests.size(); ++i) {
    const auto num_chunks = static_cast<int32_t>(chunks(i));
    const auto num_queries = static_cast<int32_t>(requests.num_queries(i));
    query_start[i + 1] = query_start[i] + num_queries;
    partial_start[i + 1] = partial_start[i] + num_queries * num_chunks;
    for (int32_t t = query_start[i]; t < query_start[i + 1]; ++t) {
      merge_start[t + 1] = merge_start[t] + num_chunks;
    }
  }
  return launch;
}

}  // namespace

StatusOr<AttentionChoice> ChooseAttention(AttentionBackend wanted, bool has_flashinfer, DType dtype,
                                          const AttentionShape& shape) {
  const bool must = wanted == AttentionBackend::kFlashInfer;
  constexpr int kWidest = 256;
  if (shape.head_dim > kWidest) {
    return InvalidArgumentError("attention on cuda is built for heads of up to " +
                                std::to_string(kWidest) + " numbers, this model's have " +
                                std::to_string(shape.head_dim) + "; take --device cpu");
  }
  if (wanted == AttentionBackend::kTandem) return AttentionChoice{false, "as asked for"};
  if (!has_flashinfer) {
    if (!must) return AttentionChoice{false, "this build has no FlashInfer"};
    return InvalidArgumentError(
        "--attention-backend flashinfer: this build has no FlashInfer (configure with "
        "-DTANDEM_CUDA=ON -DTANDEM_FLASHINFER=ON); take tandem or auto");
  }
  if (shape.is_bidirectional) {
    if (!must) return AttentionChoice{false, "FlashInfer's kernels are built for causal attention"};
    return InvalidArgumentError(
        "--attention-backend flashinfer: is built for causal attention, this model's tokens see "
        "those after them; take tandem or auto");
  }
  if (!FlashInferTakes(dtype, shape)) {
    const std::string ours = std::string(DTypeName(dtype)) + " with heads of " +
                             std::to_string(shape.head_dim) + " numbers";
    if (!must) return AttentionChoice{false, "FlashInfer is not built for " + ours};
    return InvalidArgumentError(
        "--attention-backend flashinfer: is built for bfloat16 with heads of 64, 128 or 256 "
        "numbers, this model is " +
        ours + "; take tandem or auto");
  }
  return AttentionChoice{true, must ? "as asked for" : "it is built for this model's heads"};
}

bool FlashInferTakes(DType dtype, const AttentionShape& shape) {
  return dtype == DType::kBf16 &&
         (shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256);
}

bool FlashInferDecodes(const AttentionShape& shape) {
  return shape.num_heads / shape.num_kv_heads <= 4;
}

int64_t FlashInferWorkSize(const FlashInferShape& shape, int64_t num_tokens, int64_t num_requests) {
  const int64_t rows = num_tokens * shape.group();
  // Each request's last tile may be partly empty; launches are counted as if each had everything.
  const int64_t blocks = std::max({CeilDiv(rows, kMinTileRows) + num_requests,
                                   MaxDecodeBlocks(shape), MaxPrefillBlocks(shape)});
  const int64_t block_words = 3 * blocks + CeilDiv(blocks, int64_t{sizeof(int32_t)}) + 1;
  const int64_t launch_words = block_words + 2 * (num_requests + 1) + num_tokens + 1;
  return 2 * num_requests + 1 + 2 * launch_words;
}

int64_t FlashInferPartialRows(const FlashInferShape& shape) {
  // A block has at most kMaxTileRows / group tokens, averaged over a request's tiles.
  return std::max(MaxDecodeBlocks(shape),
                  MaxPrefillBlocks(shape) * CeilDiv(kMaxTileRows, shape.group()));
}

FlashInferPlan PlanFlashInfer(const FlashInferShape& shape, const AttentionBatch& batch,
                              std::span<int32_t> words) {
  const auto num_requests = static_cast<int64_t>(batch.context_len.size());
  Room room(words);
  FlashInferPlan plan;
  plan.page_start = room.Take(num_requests + 1);
  plan.context_len = room.Take(num_requests);
  int32_t* page_start = room.at(plan.page_start);
  for (int64_t r = 0; r < num_requests; ++r) {
    page_start[r] = static_cast<int32_t>(r * batch.block_table.row_stride);
  }
  // The end of the last row, which may be narrower than the stride of rows.
  page_start[num_requests] =
      num_requests == 0
          ? 0
          : page_start[num_requests - 1] + static_cast<int32_t>(batch.block_table.RowSize());
  std::copy(batch.context_len.begin(), batch.context_len.end(), room.at(plan.context_len));

  int64_t num_decodes = 0;
  while (num_decodes < num_requests &&
         Requests{batch, num_decodes, num_decodes + 1}.num_queries(0) == 1) {
    ++num_decodes;
  }
  const Requests decodes = {batch, 0, num_decodes}, others = {batch, num_decodes, num_requests};
  plan.decode = FlashInferDecodes(shape.attention) ? PlanDecode(shape, decodes, &room)
                                                   : PlanPrefill(shape, decodes, true, &room);
  plan.prefill = PlanPrefill(shape, others, false, &room);
  return plan;
}

}  // namespace tandem
