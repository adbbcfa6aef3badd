#pragma once

// How device code reads matrices in codes (coded_layout.h): fragments of their numbers, as the
// tensor cores take them, and the scales that belong to them. Fragments are the integers, or the
// table's numbers, that codes stand for, which bf16 has exactly.

#include "kernels/cuda/coded_layout.h"
#include "kernels/cuda/device.cuh"

namespace tandem {

inline constexpr unsigned kBf16Ones = 0x3f803f80;  // a pair

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
  kFloats,   // in float32, of groups of 32 columns or more: wide steps
  kZeros,    // the same, with zeros
  kOffsets,  // with offsets
  kOthers,
};

constexpr bool HasFloats(ScaleForm form) {
  return form == ScaleForm::kFloats || form == ScaleForm::kZeros;
}

inline ScaleForm FormOf(const CodedLayout& layout) {
  if (layout.has_offsets()) return ScaleForm::kOffsets;
  const bool is_float =
      layout.scales == GroupScales::kFloat || layout.scales == GroupScales::kFloatZero;
  if (!is_float || !layout.is_wide() || layout.block_size != layout.group_size) {
    return ScaleForm::kOthers;
  }
  return layout.has_zeros() ? ScaleForm::kZeros : ScaleForm::kFloats;
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
    if constexpr (HasFloats(kForm)) {
      const uint32_t place = Quotient(at, per_group_) + row;
      raw.block = reinterpret_cast<const uint32_t*>(scales)[place];
      if constexpr (kForm == ScaleForm::kZeros) raw.group = scales[groups_begin_ + place];
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
    if constexpr (HasFloats(kForm)) {
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

// All lanes of a warp call all of it. Without branches where the form allows it.
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
        zero_(static_cast<float>(layout.zero)),
        zero_word_(Piece::ZeroWord(zero_)),
        has_zeros_(kForm == ScaleForm::kZeros ||
                   (kForm == ScaleForm::kOthers && layout.has_zeros())) {}

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
    } else if (!HasFloats(kForm) && shift_ == 0) {
      groups->numbers = reader_.Of<kForm>(Load(scales, chunk, half));
    }
  }

  // Whether a group ends after the step: after each half, if not earlier.
  __device__ bool Ends(int step) const {
    if (Piece::kIsFloat8) return step + 1 == Piece::kSteps;
    return step % 2 != 0 || (!HasFloats(kForm) && shift_ == 0);
  }
  __device__ void SetZeros(int step, LaneGroups* groups) const {
    if (step == 0 && kForm != ScaleForm::kZeros) {
      groups->zeros[0] = groups->zeros[1] = zero_word_;
    }
    if (!has_zeros_ || (step > 0 && !Ends(step - 1))) return;
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

  // The lane with the numbers of the step and of this lane's upper row.
  __device__ int PlaceOf(int step) const {
    if (step == 0 || Piece::kIsFloat8) return lane_ / 4;
    return (step >> shift_ & 1) * kRows + lane_ / 4;
  }

  ScaleReader reader_;
  int lane_;
  int shift_;  // a group has 2^shift steps of a chunk
  float zero_;
  unsigned zero_word_;
  bool has_zeros_;
};

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
