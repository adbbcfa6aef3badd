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

// Of a group: weight = (number - zero) * scale + offset.
struct GroupNumbers {
  float scale = 0, offset = 0, zero = 0;
};

// As they are in memory.
struct RawGroup {
  uint32_t block = 0, group = 0;
};

// What a kernel is compiled for.
enum class ScaleForm : uint8_t {
  kFloats,   // in float32, perhaps with zeros, of groups of 32 columns or more: wide steps
  kOffsets,  // with offsets
  kOthers,
};

__host__ __device__ inline ScaleForm FormOf(const CodedLayout& layout) {
  if (layout.has_offsets()) return ScaleForm::kOffsets;
  const bool is_float =
      layout.scales == GroupScales::kFloat || layout.scales == GroupScales::kFloatZero;
  return is_float && layout.is_wide() && layout.block_size == layout.group_size
             ? ScaleForm::kFloats
             : ScaleForm::kOthers;
}

// Reads the scales of a tile. Steps are those of all columns.
class ScaleReader {
 public:
  __device__ explicit ScaleReader(const CodedLayout& layout)
      : groups_begin_(layout.groups_begin()),
        kind_(layout.scales),
        bytes_of_block_(static_cast<int>(layout.bytes_of_block())),
        bytes_of_group_(static_cast<int>(layout.bytes_of_group())),
        last_step_(static_cast<uint32_t>(layout.num_columns / kCodedStep) - 1),
        per_block_(Inverse(layout.block_size)),
        per_group_(Inverse(layout.group_size)) {}

  // Of the group that has the step; after the last step, of the last one.
  template <ScaleForm kForm = ScaleForm::kOthers>
  __device__ RawGroup Load(const uint8_t* scales, int step, int row) const {
    const auto wanted = static_cast<uint32_t>(step), at = wanted < last_step_ ? wanted : last_step_;
    RawGroup raw;
    if constexpr (kForm == ScaleForm::kFloats) {
      const uint32_t place = Quotient(at, per_group_) + row;
      raw.block = reinterpret_cast<const uint32_t*>(scales)[place];
      if (bytes_of_group_ > 0) raw.group = scales[groups_begin_ + place];
      return raw;
    }
    if (bytes_of_block_ > 0) {
      const uint8_t* const block = scales + (Quotient(at, per_block_) + row) * bytes_of_block_;
      raw.block = bytes_of_block_ == 4 ? *reinterpret_cast<const uint32_t*>(block)
                                       : *reinterpret_cast<const uint16_t*>(block);
    }
    if (bytes_of_group_ > 0) {
      const uint8_t* const group =
          scales + groups_begin_ + (Quotient(at, per_group_) + row) * bytes_of_group_;
      raw.group = bytes_of_group_ == 2 ? *reinterpret_cast<const uint16_t*>(group) : *group;
    }
    return raw;
  }

  template <ScaleForm kForm = ScaleForm::kOthers>
  __device__ GroupNumbers Of(const RawGroup& raw) const {
    if constexpr (kForm == ScaleForm::kFloats) {
      return {.scale = std::bit_cast<float>(raw.block),
              .zero = static_cast<float>(static_cast<int8_t>(raw.group))};
    }
    const auto half = [](uint32_t bits) {
      const auto number = static_cast<uint16_t>(bits);
      return LoadHalf(&number);
    };
    switch (kind_) {
      case GroupScales::kHalf:
        return {.scale = half(raw.block)};
      case GroupScales::kHalfOffset:
        return {.scale = half(raw.block), .offset = half(raw.block >> 16)};
      case GroupScales::kInteger:
        return {.scale = half(raw.block) * static_cast<float>(static_cast<int8_t>(raw.group))};
      case GroupScales::kIntegerOffset:
        return {.scale = half(raw.block) * static_cast<float>(raw.group & 0xff),
                .offset = -(half(raw.block >> 16) * static_cast<float>(raw.group >> 8))};
      case GroupScales::kPower: {
        // The two smallest are denormal.
        const unsigned bits = raw.group < 2 ? 0x200000u << raw.group : (raw.group - 1u) << 23;
        return {.scale = std::bit_cast<float>(bits)};
      }
      case GroupScales::kFloat:
        return {.scale = std::bit_cast<float>(raw.block)};
      case GroupScales::kFloatZero:
        return {.scale = std::bit_cast<float>(raw.block),
                .zero = static_cast<float>(static_cast<int8_t>(raw.group))};
    }
    return {};
  }

 private:
  // 2^31 over the size in steps, rounded up: exact for as many steps as there are.
  __device__ static uint32_t Inverse(int32_t size) {
    return (uint32_t{1} << 31) / static_cast<uint32_t>(size / kCodedStep) + 1;
  }
  // The first of the tile's numbers for it.
  __device__ static uint32_t Quotient(uint32_t step, uint32_t inverse) {
    return static_cast<uint32_t>(uint64_t{step} * inverse >> 31) * kCodedRows;
  }

  int64_t groups_begin_;
  GroupScales kind_;
  int bytes_of_block_, bytes_of_group_;
  uint32_t last_step_, per_block_, per_group_;
};

// What a lane reads of a chunk: the codes of two rows.
template <CodedKind kKind>
struct CodedPiece {
  static constexpr bool kIsFloat8 = kKind == CodedKind::kFloat8;
  static constexpr int kChunk = kKind == CodedKind::kBytes ? 32 : 64;
  static constexpr int kSteps = kChunk / kCodedStep;
  static constexpr int kHalves = kSteps / 2;  // each of two steps: 16 bytes of x
  uint4 raw[kIsFloat8 ? 2 : 1];

  // `codes`: of the tile.
  __device__ void Load(const uint8_t* codes, const CodedLayout& layout, int chunk, int lane) {
    if constexpr (kIsFloat8) {
      const auto stride = static_cast<uint32_t>(layout.num_chunks() * kChunk);
      const uint8_t* const row = codes + lane / 4 * stride + chunk * kChunk + lane % 4 * 16;
      raw[0] = LoadStreamed(row);
      raw[1] = LoadStreamed(row + kCodedRows / 2 * stride);
    } else {
      raw[0] = LoadStreamed(codes + static_cast<uint32_t>(chunk) * kCodedBytes + lane * 16);
    }
  }

  __device__ static unsigned WordOf(const uint4& words, int i) {
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
  }

  // What Fragment takes off a number: a pair of -(128 + zero) in bf16, or 2^23 + zero.
  __device__ static unsigned ZeroWord(float zero) {
    if constexpr (kKind == CodedKind::kBytes) return std::bit_cast<unsigned>(8388608.0f + zero);
    const unsigned bits = std::bit_cast<unsigned>(-128.0f - zero);
    return bits >> 16 | bits;  // 8 bits of mantissa or fewer
  }

  // zeros: words of the upper and the lower row. `table` of kTable: the numbers in bf16.
  __device__ void Fragment(int step, const unsigned (&zeros)[2], const unsigned* table,
                           unsigned (&a)[4]) const {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      if constexpr (kKind == CodedKind::kNibbles) {
        // 128 + code has the code in the lowest bits of its mantissa.
        const unsigned pair = MaskAndSet(WordOf(raw[0], step) >> 4 * p, 0x000f000f, 0x43004300);
        a[p] = FusePairs(pair, kBf16Ones, zeros[p % 2]);
      } else if constexpr (kKind == CodedKind::kTable) {
        const unsigned word = WordOf(raw[0], step) >> 4 * p;
        a[p] = table[word & 15] | table[word >> 16 & 15] << 16;
      } else if constexpr (kKind == CodedKind::kBytes) {
        // 2^23 + code likewise, in float32; the difference is an integer of 9 bits at most.
        const unsigned word = WordOf(raw[0], 2 * step + p / 2);
        const auto number = [&](unsigned byte) {
          const unsigned high = __byte_perm(word, 0x4b000000, 0x7440 | byte);
          return std::bit_cast<unsigned>(std::bit_cast<float>(high) -
                                         std::bit_cast<float>(zeros[p % 2]));
        };
        a[p] = __byte_perm(number(p % 2 * 2), number(p % 2 * 2 + 1), 0x7632);
      } else {
        // Exponent and mantissa stand where bf16 has them, short of its bias: 2^120 makes up for
        // it.
        const unsigned high =
            __byte_perm(WordOf(raw[p % 2], step), 0, p / 2 == 0 ? 0x1404 : 0x3424);
        a[p] =
            FusePairs(MaskAndSet(high >> 4, 0x07f007f0, high & 0x80008000), 0x7b807b80, 0x80008000);
      }
    }
  }
};

// Where a lane's part of a chunk begins in a row of x.
template <CodedKind kKind>
__device__ inline int FirstColumn(int piece, bool is_wide) {
  return piece * (kKind == CodedKind::kFloat8 ? 16 : is_wide ? 8 : 4);
}

// Its numbers of two steps; `left` columns from `x` on are in the row, others are zeros.
template <CodedKind kKind, ScaleForm kForm>
__device__ inline uint4 LoadSteps(const Bf16* x, int left, int half, bool is_wide) {
  const int from = half * (kKind == CodedKind::kFloat8 ? 8 : 32);
  if (kForm == ScaleForm::kFloats || is_wide) {
    return from < left ? LoadRaw(x + from) : uint4{0, 0, 0, 0};
  }
  const auto step = [&](int column) {
    return column < left ? *reinterpret_cast<const uint2*>(x + column) : uint2{0, 0};
  };
  const uint2 first = step(from), second = step(from + static_cast<int>(kCodedStep));
  return {first.x, first.y, second.x, second.y};
}

// Fills the table in shared memory, for all threads of the block.
template <CodedKind kKind>
__device__ inline void LoadTable(const CodedLayout& layout, unsigned (&table)[16]) {
  if constexpr (kKind == CodedKind::kTable) {
    if (threadIdx.x < 16) table[threadIdx.x] = ToBf16(layout.table[threadIdx.x]).bits;
    __syncthreads();
  }
}

// What a lane has of the groups of a tile's chunk: the numbers of row l % 16, of the first group
// or, of lanes from 16 on, of the second one; and the zeros of its own two rows in the current
// group.
struct LaneGroups {
  GroupNumbers numbers;
  unsigned zeros[2];
};

// All lanes of a warp call all of it.
template <CodedKind kKind, ScaleForm kForm>
class LaneScales {
 public:
  using Piece = CodedPiece<kKind>;
  static constexpr bool kOffsets = kForm == ScaleForm::kOffsets;

  __device__ LaneScales(const CodedLayout& layout, int lane)
      : reader_(layout),
        lane_(lane),
        shift_(layout.group_size >= Piece::kChunk ? kMostShift
               : layout.group_size == 32          ? 1
                                                  : 0),
        has_zeros_(layout.has_zeros()),
        zero_(static_cast<float>(layout.zero)),
        zero_word_(Piece::ZeroWord(zero_)) {}

  // Of two groups from the half on.
  __device__ RawGroup Load(const uint8_t* scales, int chunk, int half) const {
    const int step = shift_ < kMostShift ? lane_ / kRows << shift_ : 0;
    return reader_.Load<kForm>(scales, chunk * Piece::kSteps + half * 2 + step, lane_ % kRows);
  }
  // `raw`: the chunk's first half's.
  __device__ void Begin(const RawGroup& raw, const uint8_t* scales, int chunk, int half,
                        LaneGroups* groups) const {
    if (half == 0) {
      groups->numbers = reader_.Of<kForm>(raw);
    } else if (kForm != ScaleForm::kFloats && shift_ == 0) {
      groups->numbers = reader_.Of<kForm>(Load(scales, chunk, half));
    }
  }

  __device__ bool Ends(int step) const { return step + 1 == Piece::kSteps || Begins(step + 1); }
  __device__ void SetZeros(int step, LaneGroups* groups) const {
    if (step == 0 && !has_zeros_) groups->zeros[0] = groups->zeros[1] = zero_word_;
    if (!has_zeros_ || !Begins(step)) return;
    const unsigned word = Piece::ZeroWord(zero_ + groups->numbers.zero);
    groups->zeros[0] = __shfl_sync(kAllLanes, word, PlaceOf(step));
    groups->zeros[1] = __shfl_sync(kAllLanes, word, PlaceOf(step) + 8);
  }
  // Of the step and the lane's upper row, or its lower one.
  __device__ GroupNumbers Of(int step, int lower, const LaneGroups& groups) const {
    const int at = PlaceOf(step) + lower * 8;
    return {.scale = __shfl_sync(kAllLanes, groups.numbers.scale, at),
            .offset = kOffsets ? __shfl_sync(kAllLanes, groups.numbers.offset, at) : 0};
  }

 private:
  static constexpr int kRows = kCodedRows;
  static constexpr int kMostShift = Piece::kHalves;

  __device__ bool Begins(int step) const {
    if (step == 0) return true;
    if (step % 2 != 0) return kForm != ScaleForm::kFloats && shift_ == 0;
    return !Piece::kIsFloat8 && shift_ < kMostShift;
  }
  // The lane with the numbers of the step and of this lane's upper row.
  __device__ int PlaceOf(int step) const {
    if (step == 0 || Piece::kIsFloat8) return lane_ / 4;
    return (step >> shift_ & 1) * kRows + lane_ / 4;
  }

  ScaleReader reader_;
  int lane_;
  int shift_;  // a group has 2^shift steps of a chunk
  bool has_zeros_;
  float zero_;
  unsigned zero_word_;
};

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

// A warp multiplies kHeight tiles of the matrix by all rows of x; `split` warps share its depth.
// Rows of x are multiples of 16 bytes, aligned to them. A warp's loads of codes are kUnroll chunks
// ahead, those of x half a chunk. kWaits: waits for the previous kernel once the first codes are in
// flight. `partial`: kHeight of each warp.
template <CodedKind kKind, ScaleForm kForm, int kTiles, int kHeight, bool kWaits,
          int kUnroll = 4 / kHeight, class Out>
__device__ inline void MultiplyCodedTiles(Out* out, const Bf16* x, const uint8_t* codes,
                                          const CodedLayout& layout, const SkinnyArgs& args,
                                          const unsigned* table, TileSums<kTiles, false>* partial) {
  using Piece = CodedPiece<kKind>;
  const LinearArgs& linear = args.linear;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int split = args.split, part = warp % split;
  const int row = lane / 4, piece = lane % 4;
  const int num_chunks = static_cast<int>(layout.num_chunks());
  const bool is_wide = layout.is_wide();
  const int64_t num_tiles = layout.num_tiles();
  const int64_t first_tile =
      (int64_t{blockIdx.x} * (kSkinnyWarps / split) + warp / split) * kHeight;
  const uint8_t* tile_codes[kHeight];
  const uint8_t* tile_scales[kHeight];
#pragma unroll
  for (int h = 0; h < kHeight; ++h) {
    // A tile after the last one is read as the first one, and not stored.
    const int64_t tile = first_tile + h < num_tiles ? first_tile + h : 0;
    tile_codes[h] = codes + tile * layout.code_bytes();
    tile_scales[h] = codes + num_tiles * layout.code_bytes() + tile * layout.scale_bytes();
  }
  // The lane's part of the chunk whose steps are loaded next.
  const int begin = part * Piece::kChunk + FirstColumn<kKind>(piece, is_wide);
  int left = static_cast<int>(linear.k) - begin;
  const Bf16* rows[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int x_row = t * kTileRows + row;
    rows[t] = x + (x_row < linear.m ? x_row : 0) * linear.x_stride + begin;
  }

  const LaneScales<kKind, kForm> scales(layout, lane);
  Piece pieces[kUnroll][kHeight];
  RawGroup groups[kUnroll][kHeight];
  const auto load = [&](int u, int chunk) {
    if (chunk >= num_chunks) return;
#pragma unroll
    for (int h = 0; h < kHeight; ++h) {
      pieces[u][h].Load(tile_codes[h], layout, chunk, lane);
      groups[u][h] = scales.Load(tile_scales[h], chunk, 0);
    }
  };
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) load(u, part + u * split);
  if constexpr (kWaits) WaitForPreviousKernel();

  uint4 steps[2][kTiles];
  const auto load_steps = [&](int to, int half) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      steps[to][t] = LoadSteps<kKind, kForm>(rows[t], left, half, is_wide);
    }
  };
  load_steps(0, 0);
  CodedSums<kTiles, kForm == ScaleForm::kOffsets> sums[kHeight];
  LaneGroups lane_groups[kHeight];
  for (int first = part; first < num_chunks; first += kUnroll * split) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int chunk = first + u * split;
      if (chunk >= num_chunks) break;
#pragma unroll
      for (int half = 0; half < Piece::kHalves; ++half) {
        const int now = Piece::kHalves == 2 ? half : u % 2;
        if (half + 1 < Piece::kHalves) {
          load_steps(1 - now, half + 1);
        } else {
          left -= split * Piece::kChunk;
#pragma unroll
          for (int t = 0; t < kTiles; ++t) rows[t] += split * Piece::kChunk;
          load_steps(1 - now, 0);
        }
#pragma unroll
        for (int h = 0; h < kHeight; ++h) {
          scales.Begin(groups[u][h], tile_scales[h], chunk, half, &lane_groups[h]);
#pragma unroll
          for (int step = 2 * half; step < 2 * half + 2; ++step) {
            scales.SetZeros(step, &lane_groups[h]);
            unsigned a[4];
            pieces[u][h].Fragment(step, lane_groups[h].zeros, table, a);
#pragma unroll
            for (int t = 0; t < kTiles; ++t) {
              const uint4& x_steps = steps[now][t];
              sums[h].Add(a, t, step % 2 == 0 ? x_steps.x : x_steps.z,
                          step % 2 == 0 ? x_steps.y : x_steps.w);
            }
            if (!scales.Ends(step)) continue;
            sums[h].EndGroup(scales.Of(step, 0, lane_groups[h]),
                             scales.Of(step, 1, lane_groups[h]));
          }
        }
      }
      load(u, chunk + kUnroll * split);
    }
  }

#pragma unroll
  for (int h = 0; h < kHeight; ++h) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        partial[warp * kHeight + h][0][t * kTileRows + 2 * piece + i % 2][row + i / 2 * 8] =
            sums[h].totals[t][i];
      }
    }
  }
  __syncthreads();
  const int num_sums = static_cast<int>(linear.m) * static_cast<int>(kCodedRows);
#pragma unroll
  for (int h = 0; h < kHeight; ++h) {
    for (int i = part * kWarpSize + lane; i < num_sums; i += split * kWarpSize) {
      const int at = i % static_cast<int>(kCodedRows), x_row = i / static_cast<int>(kCodedRows);
      const int64_t column = (first_tile + h) * kCodedRows + at;
      if (column >= linear.n) continue;
      float total = 0;
      for (int p = 0; p < split; ++p) {
        total += partial[(warp - part + p) * kHeight + h][0][x_row][at];
      }
      StoreSum(out, linear, x_row, column, total);
    }
  }
}

// One number of a matrix, at a place of its columns.
__device__ inline float CodedNumber(const uint8_t* codes, const CodedLayout& layout, int64_t row,
                                    int64_t column) {
  const int64_t tile = row / kCodedRows;
  const int in_tile = static_cast<int>(row % kCodedRows);
  const CodedPlace at = layout.PlaceOf(static_cast<int>(column % layout.chunk()));
  const uint8_t* const of_tile = codes + tile * layout.code_bytes();
  const int pair = at.place / 2 * 2 + in_tile / 8, second = at.place % 2,
            nibble = pair + 4 * second;
  const uint8_t* const piece =
      of_tile + column / layout.chunk() * kCodedBytes + (in_tile % 8 * 4 + at.piece) * 16;
  float number = 0;
  switch (layout.kind) {
    case CodedKind::kNibbles:
    case CodedKind::kTable: {
      const int code = piece[at.step * 4 + nibble / 2] >> nibble % 2 * 4 & 15;
      number = layout.kind == CodedKind::kTable ? layout.table[code]
                                                : static_cast<float>(code - layout.zero);
      break;
    }
    case CodedKind::kBytes:
      number = static_cast<float>(piece[(2 * at.step + pair / 2) * 4 + pair % 2 * 2 + second] -
                                  layout.zero);
      break;
    case CodedKind::kFloat8:
      number = Float8ToFloat(of_tile[in_tile * layout.num_chunks() * kFloat8Columns + column]);
      break;
  }
  const ScaleReader scales(layout);
  const GroupNumbers group = scales.Of(
      scales.Load(codes + layout.num_tiles() * layout.code_bytes() + tile * layout.scale_bytes(),
                  static_cast<int>(column / kCodedStep), in_tile));
  // The difference first, as the source has it: it is exact.
  return (number - group.zero) * group.scale + group.offset;
}

}  // namespace tandem
