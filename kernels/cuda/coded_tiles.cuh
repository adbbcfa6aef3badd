#pragma once

// Products with matrices in codes (coded_layout.h). Device code, for all threads of a block of
// kSkinnyThreads. Fragments are the integers, or the table's numbers, that codes stand for, which
// bf16 has exactly; sums of a group's columns are multiplied by its scale in float32. So weights
// are not rounded, and x is not rounded further.

#include "kernels/cuda/coded_layout.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/tensor_core_linear.cuh"

namespace tandem {

inline constexpr unsigned kBf16Ones = 0x3f803f80;

// Scale and offset of a group: weight = number * scale + offset.
struct GroupNumbers {
  float scale, offset;
};

// The scales of a tile.
struct TileScales {
  const uint8_t* blocks;
  const uint8_t* groups;
  GroupScales kind;
  uint32_t block_size, group_size;
  int bytes_of_group;

  __device__ TileScales(const uint8_t* scales, const CodedLayout& layout)
      : blocks(scales),
        groups(scales + layout.groups_begin()),
        kind(layout.scales),
        block_size(static_cast<uint32_t>(layout.block_size)),
        group_size(static_cast<uint32_t>(layout.group_size)),
        bytes_of_group(static_cast<int>(layout.bytes_of_group())) {}

  __device__ const uint8_t* GroupOf(int64_t column, int row) const {
    return groups +
           (static_cast<uint32_t>(column) / group_size * kCodedRows + row) * bytes_of_group;
  }
  __device__ GroupNumbers Of(int64_t column, int row) const;
};

__device__ inline GroupNumbers TileScales::Of(int64_t column, int row) const {
  const int64_t block = static_cast<uint32_t>(column) / block_size * kCodedRows + row;
  const uint8_t* const group = GroupOf(column, row);
  const auto half = [&](int64_t i) {
    return LoadHalf(reinterpret_cast<const uint16_t*>(blocks) + i);
  };
  const auto number = [&] { return reinterpret_cast<const float*>(blocks)[block]; };
  switch (kind) {
    case GroupScales::kHalf:
      return {half(block), 0};
    case GroupScales::kHalfOffset:
      return {half(2 * block), half(2 * block + 1)};
    case GroupScales::kInteger:
      return {half(block) * static_cast<float>(static_cast<int8_t>(*group)), 0};
    case GroupScales::kIntegerOffset:
      return {half(2 * block) * static_cast<float>(group[0]),
              -(half(2 * block + 1) * static_cast<float>(group[1]))};
    case GroupScales::kPower: {
      // The two smallest are denormal.
      const unsigned bits = *group < 2 ? 0x200000u << *group : (*group - 1u) << 23;
      return {std::bit_cast<float>(bits), 0};
    }
    case GroupScales::kFloat:
      return {number(), 0};
    case GroupScales::kFloatZero: {
      const float scale = number();
      return {scale, -scale * static_cast<float>(static_cast<int8_t>(*group))};
    }
  }
  return {0, 0};
}

// What a lane reads of a chunk: the codes of two rows.
template <CodedKind kKind>
struct CodedPiece {
  static constexpr bool kIsFloat8 = kKind == CodedKind::kFloat8;
  static constexpr int kChunk = kKind == CodedKind::kBytes ? 32 : 64;
  static constexpr int kSteps = kChunk / kCodedStep;
  uint4 raw[kIsFloat8 ? 2 : 1];

  // `codes`: of the tile.
  __device__ void Load(const uint8_t* codes, const CodedLayout& layout, int64_t chunk, int lane) {
    if constexpr (kIsFloat8) {
      const uint8_t* const row =
          codes + lane / 4 * layout.num_chunks() * kChunk + chunk * kChunk + lane % 4 * 16;
      raw[0] = LoadRaw(row);
      raw[1] = LoadRaw(row + kCodedRows / 2 * layout.num_chunks() * kChunk);
    } else {
      raw[0] = LoadRaw(codes + chunk * kCodedBytes + lane * 16);
    }
  }

  // The first column of x that the lane multiplies in a step, from the chunk's begin.
  __device__ static int ColumnOf(int step, int lane) {
    return kIsFloat8 ? lane % 4 * 16 + step * 4 : step * 16 + lane % 4 * 4;
  }

  __device__ static unsigned WordOf(const uint4& words, int i) {
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
  }

  // `zero` of kNibbles: a pair of -(128 + zero) in bf16; of kBytes: 2^23 + zero. `table` of kTable:
  // the numbers in bf16.
  __device__ void Fragment(int step, unsigned zero, const unsigned* table, unsigned (&a)[4]) const {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      if constexpr (kKind == CodedKind::kNibbles) {
        // 128 + code has the code in the lowest bits of its mantissa.
        const unsigned pair = (WordOf(raw[0], step) >> 4 * p & 0x000f000f) | 0x43004300;
        a[p] = FusePairs(pair, kBf16Ones, zero);
      } else if constexpr (kKind == CodedKind::kTable) {
        const unsigned word = WordOf(raw[0], step) >> 4 * p;
        a[p] = table[word & 15] | table[word >> 16 & 15] << 16;
      } else if constexpr (kKind == CodedKind::kBytes) {
        // 2^23 + code likewise, in float32; the difference is an integer of 8 bits.
        const unsigned word = WordOf(raw[0], 2 * step + p / 2) >> p % 2 * 16;
        const float taken = std::bit_cast<float>(zero);
        const auto number = [taken](unsigned code) {
          return std::bit_cast<unsigned>(std::bit_cast<float>(0x4b000000 | code) - taken);
        };
        a[p] = number(word & 0xff) >> 16 | (number(word >> 8 & 0xff) & 0xffff0000);
      } else {
        // Exponent and mantissa stand where bf16 has them, short of its bias: 2^120 makes up for
        // it.
        const unsigned codes = WordOf(raw[p % 2], step) >> p / 2 * 16;
        const unsigned high = (codes & 0xff) << 8 | (codes & 0xff00) << 16;
        a[p] = FusePairs((high & 0x80008000) | (high & 0x7f007f00) >> 4, 0x7b807b80, 0x80008000);
      }
    }
  }
};

__device__ inline unsigned ZeroOf(const CodedLayout& layout) {
  if (layout.kind == CodedKind::kBytes) {
    return std::bit_cast<unsigned>(8388608.0f + static_cast<float>(layout.zero));
  }
  const unsigned bits = ToBf16(-128.0f - static_cast<float>(layout.zero)).bits;
  return bits | bits << 16;
}

// Fills the table in shared memory, for all threads of the block.
template <CodedKind kKind>
__device__ inline void LoadTable(const CodedLayout& layout, unsigned (&table)[16]) {
  if constexpr (kKind == CodedKind::kTable) {
    if (threadIdx.x < 16) table[threadIdx.x] = ToBf16(layout.table[threadIdx.x]).bits;
    __syncthreads();
  }
}

// A warp multiplies a tile of the matrix by all rows of x; `split` warps share its depth. Rows of x
// are multiples of 8 bytes, aligned to them. kWaits: waits for the previous kernel once the first
// codes are in flight.
template <CodedKind kKind, int kTiles, bool kWaits, class Out>
__device__ inline void MultiplyCodedTiles(Out* out, const Bf16* x, const uint8_t* codes,
                                          const CodedLayout& layout, const SkinnyArgs& args,
                                          const unsigned* table, TileSums<kTiles, false>* partial) {
  using Piece = CodedPiece<kKind>;
  constexpr int kUnroll = Piece::kIsFloat8 ? 2 : 4;
  const LinearArgs& linear = args.linear;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int part = warp % args.split;
  const int row = lane / 4, piece = lane % 4;
  const int64_t num_chunks = layout.num_chunks(), num_tiles = layout.num_tiles();
  const int64_t tile = int64_t{blockIdx.x} * (kSkinnyWarps / args.split) + warp / args.split;
  // A warp after the last tile reads the first one, and stores nothing.
  const int64_t read_tile = tile < num_tiles ? tile : 0;
  const uint8_t* const tile_codes = codes + read_tile * layout.code_bytes();
  const TileScales scales(
      codes + num_tiles * layout.code_bytes() + read_tile * layout.scale_bytes(), layout);
  const Bf16* rows[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int x_row = t * kTileRows + row;
    rows[t] = x + (x_row < linear.m ? x_row : 0) * linear.x_stride;
  }

  Piece pieces[kUnroll];
  const auto load = [&](int64_t chunk) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = chunk + u * args.split;
      if (at < num_chunks) pieces[u].Load(tile_codes, layout, at, lane);
    }
  };
  int64_t chunk = part;
  load(chunk);
  if constexpr (kWaits) WaitForPreviousKernel();

  float totals[kTiles][4] = {}, sums[kTiles][4] = {}, x_sums[kTiles][4] = {};
  const unsigned zero = ZeroOf(layout);
  const bool has_offsets = layout.has_offsets();
  const int steps_of_group = layout.group_size < Piece::kChunk
                                 ? layout.group_size / static_cast<int>(kCodedStep)
                                 : Piece::kSteps;
  const unsigned ones[4] = {kBf16Ones, kBf16Ones, kBf16Ones, kBf16Ones};
  while (chunk < num_chunks) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t first = (chunk + u * args.split) * Piece::kChunk;
      if (first >= linear.k) break;
#pragma unroll
      for (int step = 0; step < Piece::kSteps; ++step) {
        const int64_t step_column = first + (Piece::kIsFloat8 ? 0 : step * kCodedStep);
        if (step_column >= linear.k) break;
        unsigned a[4];
        pieces[u].Fragment(step, zero, table, a);
        const int64_t column = first + Piece::ColumnOf(step, lane);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const uint2 pairs =
              column < linear.k ? *reinterpret_cast<const uint2*>(rows[t] + column) : uint2{0, 0};
          MultiplyFragments(sums[t], a, {pairs.x, pairs.y});
          if (has_offsets) MultiplyFragments(x_sums[t], ones, {pairs.x, pairs.y});
        }
        const bool is_last = step + 1 == Piece::kSteps ||
                             (!Piece::kIsFloat8 && step_column + kCodedStep >= linear.k);
        if (!is_last && (step + 1) % steps_of_group != 0) continue;
        const GroupNumbers upper = scales.Of(step_column, row);
        const GroupNumbers lower = scales.Of(step_column, row + 8);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const GroupNumbers& group = i < 2 ? upper : lower;
            totals[t][i] += group.scale * sums[t][i];
            if (has_offsets) totals[t][i] += group.offset * x_sums[t][i];
            sums[t][i] = 0;
            x_sums[t][i] = 0;
          }
        }
      }
    }
    chunk += kUnroll * args.split;
    if (chunk < num_chunks) load(chunk);
  }

#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      partial[warp][0][t * kTileRows + 2 * piece + i % 2][row + i / 2 * 8] = totals[t][i];
    }
  }
  __syncthreads();
  const int first_warp = warp - part;
  const int num_sums = static_cast<int>(linear.m) * static_cast<int>(kCodedRows);
  for (int i = part * kWarpSize + lane; i < num_sums; i += args.split * kWarpSize) {
    const int at = i % static_cast<int>(kCodedRows), x_row = i / static_cast<int>(kCodedRows);
    const int64_t column = tile * kCodedRows + at;
    if (tile >= num_tiles || column >= linear.n) continue;
    float total = 0;
    for (int p = 0; p < args.split; ++p) total += partial[first_warp + p][0][x_row][at];
    StoreSum(out, linear, x_row, column, total);
  }
}

// One number of a matrix, at a place of its columns.
__device__ inline float CodedNumber(const uint8_t* codes, const CodedLayout& layout, int64_t row,
                                    int64_t column) {
  const int64_t tile = row / kCodedRows, chunk = column / layout.chunk();
  const int in_tile = static_cast<int>(row % kCodedRows);
  const int place = static_cast<int>(column % layout.chunk());
  const uint8_t* const of_tile = codes + tile * layout.code_bytes();
  const int step = place / 16, lane = in_tile % 8 * 4 + place % 16 / 4;
  const int pair = place % 4 / 2 * 2 + in_tile / 8, second = place % 2;
  const uint8_t* const piece = of_tile + chunk * kCodedBytes + lane * 16;
  const int nibble = pair + 4 * second;
  float number = 0;
  switch (layout.kind) {
    case CodedKind::kNibbles:
    case CodedKind::kTable: {
      const int code = piece[step * 4 + nibble / 2] >> nibble % 2 * 4 & 15;
      number = layout.kind == CodedKind::kTable ? layout.table[code]
                                                : static_cast<float>(code - layout.zero);
      break;
    }
    case CodedKind::kBytes:
      number = static_cast<float>(piece[(2 * step + pair / 2) * 4 + pair % 2 * 2 + second] -
                                  layout.zero);
      break;
    case CodedKind::kFloat8:
      number = Float8ToFloat(of_tile[in_tile * layout.num_chunks() * kFloat8Columns + column]);
      break;
  }
  const TileScales scales(
      codes + layout.num_tiles() * layout.code_bytes() + tile * layout.scale_bytes(), layout);
  const GroupNumbers group = scales.Of(column, in_tile);
  if (layout.scales != GroupScales::kFloatZero) return number * group.scale + group.offset;
  // The difference first, as the source has it: it is exact.
  const auto zero = static_cast<int8_t>(*scales.GroupOf(column, in_tile));
  return (number - static_cast<float>(zero)) * group.scale;
}

}  // namespace tandem
