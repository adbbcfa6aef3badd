#pragma once

// Products with matrices in codes. Device code, for all threads of a block. Sums of a group's
// columns, of the numbers that codes stand for (coded_pieces.cuh), are multiplied by its scale in
// float32. So weights are not rounded, and x is not rounded further.

#include "kernels/cuda/coded_pieces.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/tensor_core_linear.cuh"

namespace tandem {

// Where a lane's part of a chunk begins in a row of x.
template <CodedKind kKind>
__device__ inline int FirstColumn(int piece, bool is_wide) {
  return piece * (kKind == CodedKind::kFloat8 ? 16 : is_wide ? 8 : 4);
}

// Its numbers of two steps; `left` columns from `x` on are in the row, others are zeros.
template <CodedKind kKind, ScaleForm kForm>
__device__ inline uint4 LoadSteps(const Bf16* x, int left, int half, bool is_wide) {
  const int from = half * (kKind == CodedKind::kFloat8 ? 8 : 32);
  if (HasFloats(kForm) || is_wide) {
    return from < left ? LoadRaw(x + from) : uint4{0, 0, 0, 0};
  }
  const auto step = [&](int column) {
    return column < left ? *reinterpret_cast<const uint2*>(x + column) : uint2{0, 0};
  };
  const uint2 first = step(from), second = step(from + static_cast<int>(kCodedStep));
  return {first.x, first.y, second.x, second.y};
}

// A lane's sums of a tile of the matrix by kTiles tiles of x.
template <int kTiles, bool kOffsets>
struct CodedSums {
  float totals[kTiles][4] = {}, group[kTiles][4] = {}, x[kOffsets ? kTiles : 1][4] = {};

  __device__ void Add(const unsigned (&a)[4], int t, unsigned first, unsigned second) {
    const unsigned ones[4] = {kBf16Ones, kBf16Ones, kBf16Ones, kBf16Ones};
    MultiplyFragments(group[t], a, {first, second});
    if constexpr (kOffsets) MultiplyFragments(x[t], ones, {first, second});
  }
  __device__ void EndGroup(const GroupNumbers& upper, const GroupNumbers& lower) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const GroupNumbers& numbers = i < 2 ? upper : lower;
        totals[t][i] += numbers.scale * group[t][i];
        group[t][i] = 0;
        if constexpr (kOffsets) {
          totals[t][i] += numbers.offset * x[t][i];
          x[t][i] = 0;
        }
      }
    }
  }
};

// How a block works: its warps, the chunks that a warp loads ahead, and whether the block copies x
// to shared memory for all its warps, a stage ahead: a chunk for each of `split` warps.
template <int kBlockWarps, int kAhead, bool kCopiesX>
struct CodedBlock {
  static constexpr int kWarps = kBlockWarps;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kUnroll = kAhead;
  static constexpr bool kHasStages = kCopiesX;
  static constexpr int kStageBytes = 16 << 10;  // two of them fit
  // Of x in kTiles tiles: most warps that share a tile's depth.
  static constexpr int MostSplit(int num_tiles) {
    return kHasStages && kWarps > 16 / num_tiles ? 16 / num_tiles : kWarps;
  }
};

// Shared memory of a block: the stages of x, then each warp's sums.
template <int kTiles, class Block>
struct alignas(16) CodedMemory {
  static constexpr int kSumBytes = Block::kWarps * sizeof(TileSums<kTiles, false>);
  static constexpr int kBytes =
      Block::kHasStages && 2 * Block::kStageBytes > kSumBytes ? 2 * Block::kStageBytes : kSumBytes;
  unsigned char bytes[kBytes];

  __device__ TileSums<kTiles, false>* sums() {
    return reinterpret_cast<TileSums<kTiles, false>*>(bytes);
  }
  __device__ uint4* Stage(int i) {
    return reinterpret_cast<uint4*>(bytes + i * Block::kStageBytes);
  }
};

// A stage of x: [chunks][rows][kUnits of 16 bytes]. Units of odd rows are exchanged, so that the
// lanes that read at once find theirs in different banks.
template <CodedKind kKind, int kTiles>
struct CodedStage {
  using Piece = CodedPiece<kKind>;
  static constexpr int kRows = kTiles * kTileRows;
  static constexpr int kUnits = Piece::kChunk / 8;

  __device__ static int PlaceOf(int chunk, int row, int unit) {
    const int exchanged = Piece::kIsFloat8 ? unit ^ (row & 1) : unit ^ (row & 1) * (kUnits & 8) / 2;
    return (chunk * kRows + row) * kUnits + exchanged;
  }

  // Columns from `column` on, for `split` chunks; all warps of the block.
  template <int kWarps>
  __device__ static void Copy(uint4* stage, const Bf16* x, const LinearArgs& linear, int column,
                              int split) {
    const int num_rows = static_cast<int>(linear.m), num_columns = static_cast<int>(linear.k);
    for (int row = static_cast<int>(threadIdx.x) / kWarpSize; row < kRows; row += kWarps) {
      const Bf16* const from = x + (row < num_rows ? row : 0) * linear.x_stride + column;
      for (int unit = static_cast<int>(threadIdx.x) % kWarpSize; unit < split * kUnits;
           unit += kWarpSize) {
        const bool is_there = row < num_rows && column + unit * 8 < num_columns;
        CopyAsync(stage + PlaceOf(unit / kUnits, row, unit % kUnits),
                  is_there ? from + unit * 8 : x, is_there);
      }
    }
  }

  // As LoadSteps does.
  __device__ static uint4 Load(const uint4* stage, int chunk, int row, int half, int piece,
                               bool is_wide) {
    if (is_wide) {
      const int unit = Piece::kIsFloat8 ? piece * 2 + half : half * 4 + piece;
      return stage[PlaceOf(chunk, row, unit)];
    }
    const auto step = [&](int unit) {
      return reinterpret_cast<const uint2*>(stage + PlaceOf(chunk, row, unit))[piece % 2];
    };
    const uint2 first = step(half * 4 + piece / 2), second = step(half * 4 + 2 + piece / 2);
    return {first.x, first.y, second.x, second.y};
  }
};

// A warp's tile of the matrix, its chunks one after another.
template <CodedKind kKind, ScaleForm kForm, int kTiles, class Block>
class CodedTile {
 public:
  using Piece = CodedPiece<kKind>;

  // A tile after the last one is read as the first one.
  __device__ CodedTile(const uint8_t* codes, const CodedLayout& layout, int64_t tile, int lane)
      : layout_(layout), scales_(layout, lane), lane_(lane) {
    const int64_t num_tiles = layout.num_tiles(), read = tile < num_tiles ? tile : 0;
    codes_ = codes + read * layout.code_bytes();
    tile_scales_ = codes + num_tiles * layout.code_bytes() + read * layout.scale_bytes();
    num_chunks_ = static_cast<int>(layout.num_chunks());
  }

  // Codes and scales of the chunk, to be multiplied as number u of kUnroll; of none after the last.
  __device__ void Load(int u, int chunk) {
    if (chunk >= num_chunks_) return;
    pieces_[u].Load(codes_, layout_, chunk, lane_);
    groups_[u] = scales_.Load(tile_scales_, chunk, 0);
  }
  // The first half of the chunk, or the second one; steps: of x.
  __device__ void Multiply(int u, int chunk, int half, const uint4 (&steps)[kTiles],
                           const unsigned* table) {
    scales_.Begin(groups_[u], tile_scales_, chunk, half, &lane_groups_);
#pragma unroll
    for (int step = 2 * half; step < 2 * half + 2; ++step) {
      scales_.SetZeros(step, &lane_groups_);
      unsigned a[4];
      pieces_[u].Fragment(step, lane_groups_.zeros, table, a);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        sums_.Add(a, t, step % 2 == 0 ? steps[t].x : steps[t].z,
                  step % 2 == 0 ? steps[t].y : steps[t].w);
      }
      if (!scales_.Ends(step)) continue;
      sums_.EndGroup(scales_.Of(step, 0, lane_groups_), scales_.Of(step, 1, lane_groups_));
    }
  }

  __device__ int num_chunks() const { return num_chunks_; }
  __device__ const float (&totals() const)[kTiles][4] { return sums_.totals; }

 private:
  const CodedLayout& layout_;
  const LaneScales<kKind, kForm> scales_;
  int lane_, num_chunks_;
  const uint8_t* codes_;
  const uint8_t* tile_scales_;
  Piece pieces_[Block::kUnroll] = {};
  RawGroup groups_[Block::kUnroll];
  CodedSums<kTiles, kForm == ScaleForm::kOffsets> sums_;
  LaneGroups lane_groups_;
};

// All chunks of a warp, x from the caches, half a chunk ahead.
template <CodedKind kKind, ScaleForm kForm, int kTiles, class Block>
__device__ inline void MultiplyFromCaches(CodedTile<kKind, kForm, kTiles, Block>* tile,
                                          const Bf16* x, const LinearArgs& linear, int part,
                                          int split, bool is_wide, const unsigned* table) {
  using Piece = CodedPiece<kKind>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  // The lane's part of the chunk whose steps are loaded next.
  const int begin = part * Piece::kChunk + FirstColumn<kKind>(lane % 4, is_wide);
  int left = static_cast<int>(linear.k) - begin;
  const Bf16* rows[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int row = t * kTileRows + lane / 4;
    rows[t] = x + (row < linear.m ? row : 0) * linear.x_stride + begin;
  }
  uint4 steps[2][kTiles];
  const auto load = [&](int to, int half) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      steps[to][t] = LoadSteps<kKind, kForm>(rows[t], left, half, is_wide);
    }
  };
  load(0, 0);
  for (int first = part; first < tile->num_chunks(); first += Block::kUnroll * split) {
#pragma unroll
    for (int u = 0; u < Block::kUnroll; ++u) {
      const int chunk = first + u * split;
#pragma unroll
      for (int half = 0; half < Piece::kHalves; ++half) {
        const int now = Piece::kHalves == 2 ? half : u % 2;
        if (half + 1 == Piece::kHalves) {
          left -= split * Piece::kChunk;
#pragma unroll
          for (int t = 0; t < kTiles; ++t) rows[t] += split * Piece::kChunk;
        }
        load(1 - now, (half + 1) % Piece::kHalves);
        tile->Multiply(u, chunk, half, steps[now], table);
      }
      tile->Load(u, chunk + Block::kUnroll * split);
    }
  }
}

// The same, x from the stages of the block.
template <CodedKind kKind, ScaleForm kForm, int kTiles, class Block>
__device__ inline void MultiplyFromStages(CodedTile<kKind, kForm, kTiles, Block>* tile,
                                          const Bf16* x, const LinearArgs& linear, int part,
                                          int split, bool is_wide, const unsigned* table,
                                          CodedMemory<kTiles, Block>* memory) {
  using Piece = CodedPiece<kKind>;
  using Stage = CodedStage<kKind, kTiles>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto copy = [&](int i, int chunk) {
    Stage::template Copy<Block::kWarps>(memory->Stage(i % 2), x, linear, chunk * Piece::kChunk,
                                        split);
  };
  copy(0, 0);
  for (int first = 0; first < tile->num_chunks(); first += Block::kUnroll * split) {
#pragma unroll
    for (int u = 0; u < Block::kUnroll; ++u) {
      const int of_stage = first + u * split, chunk = of_stage + part;
      AwaitCopies();
      __syncthreads();  // of all threads; and the next stage's memory has been read
      copy(u + 1, of_stage + split);
#pragma unroll
      for (int half = 0; half < Piece::kHalves; ++half) {
        uint4 steps[kTiles];
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          steps[t] = Stage::Load(memory->Stage(u % 2), part, t * kTileRows + lane / 4, half,
                                 lane % 4, HasFloats(kForm) || is_wide);
        }
        tile->Multiply(u, chunk, half, steps, table);
      }
      tile->Load(u, chunk + Block::kUnroll * split);
    }
  }
  AwaitCopies();
  __syncthreads();  // then the memory holds sums
}

// A warp multiplies a tile of the matrix by all rows of x; `split` warps share its depth. Rows of x
// are multiples of 16 bytes, aligned to them. Chunks after the last one are multiplied by zeros.
// kWaits: waits for the previous kernel once the first codes are in flight.
template <CodedKind kKind, ScaleForm kForm, int kTiles, class Block, bool kWaits, class Out>
__device__ inline void MultiplyCodedTiles(Out* out, const Bf16* x, const uint8_t* codes,
                                          const CodedLayout& layout, const SkinnyArgs& args,
                                          const unsigned* table,
                                          CodedMemory<kTiles, Block>* memory) {
  const LinearArgs& linear = args.linear;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int split = args.split, part = warp % split;
  const int64_t number = int64_t{blockIdx.x} * (Block::kWarps / split) + warp / split;
  CodedTile<kKind, kForm, kTiles, Block> tile(codes, layout, number, lane);
#pragma unroll
  for (int u = 0; u < Block::kUnroll; ++u) tile.Load(u, part + u * split);
  if constexpr (kWaits) WaitForPreviousKernel();
  if constexpr (Block::kHasStages) {
    MultiplyFromStages(&tile, x, linear, part, split, layout.is_wide(), table, memory);
  } else {
    MultiplyFromCaches(&tile, x, linear, part, split, layout.is_wide(), table);
  }

  TileSums<kTiles, false>* const partial = memory->sums();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      partial[warp][0][t * kTileRows + 2 * (lane % 4) + i % 2][lane / 4 + i / 2 * 8] =
          tile.totals()[t][i];
    }
  }
  __syncthreads();
  const int num_sums = static_cast<int>(linear.m) * static_cast<int>(kCodedRows);
  for (int i = part * kWarpSize + lane; i < num_sums; i += split * kWarpSize) {
    const int at = i % static_cast<int>(kCodedRows), x_row = i / static_cast<int>(kCodedRows);
    const int64_t column = number * kCodedRows + at;
    if (column >= linear.n) continue;
    float total = 0;
    for (int p = 0; p < split; ++p) total += partial[warp - part + p][0][x_row][at];
    StoreSum(out, linear, x_row, column, total);
  }
}

}  // namespace tandem
