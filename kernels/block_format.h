#pragma once

// Ways to store a run of a row's weights as one block, with the scales among them: GGML's block
// formats, and the groups of quantized checkpoints (stored_blocks.h). A format of GGML is a row
// here (block_format.cc) and a function in kernels/blocks that finds a block's parts; readers of
// numbers, the reference's products and the CPU's panels follow from the row. Pure; any thread.
// Units: weights and bytes of one block. Source: ggml's quantization formats; numbers equal those
// of the gguf package's dequantize to the bit.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr int64_t kMaxBlockSize = 256;
inline constexpr int64_t kMinGroupSize = 16;
inline constexpr int64_t kMaxBlockGroups = kMaxBlockSize / kMinGroupSize;

// Where a group's scale and offset come from: weight = scale * integer + offset.
enum class GroupScales : uint8_t {
  kHalf,           // the block's scale, in f16
  kHalfOffset,     // and its offset, in f16
  kInteger,        // the block's scale times a signed byte of the group
  kIntegerOffset,  // times an unsigned byte; offset: minus the block's times another byte
  kPower,          // 2^(byte of the group - 128)
  kFloat,          // the block's scale, in f32
  kFloatZero,      // the same; the group's signed byte is taken off each integer
};

// The parts of a block.
struct BlockCodes {
  uint8_t codes[kMaxBlockSize];
  uint16_t scale = 0, offset = 0;  // f16
  float float_scale = 0;
  uint8_t group_scales[kMaxBlockGroups] = {};
  uint8_t group_offsets[kMaxBlockGroups] = {};  // or zeros
};

struct BlockFormat {
  std::string_view name;  // as GGUF files name it: "Q4_K"
  int64_t size;           // weights, at most kMaxBlockSize, a multiple of 32
  int64_t num_bytes;
  int64_t group_size;  // weights that share a scale: 16, or a multiple of 32
  int bits;            // of a code: 2, 3, 4, 5, 6 or 8
  int zero;            // code that stands for 0
  GroupScales scales;
  // What 16 codes stand for; null: code - zero.
  const int8_t* values;
  void (*read)(const uint8_t* block, BlockCodes* parts);

  int64_t num_groups() const { return size / group_size; }
  int IntegerOf(uint8_t code) const { return values != nullptr ? values[code] : code - zero; }
  bool has_offsets() const {
    return scales == GroupScales::kHalfOffset || scales == GroupScales::kIntegerOffset;
  }
  bool has_zeros() const { return scales == GroupScales::kFloatZero; }
};

struct GroupScale {
  float scale = 0;
  float offset = 0;
  int zero = 0;
};
GroupScale ScaleOfGroup(const BlockFormat& format, const BlockCodes& parts, int64_t group);

// weights[0 .. format.size) = the numbers that the parts stand for.
void ReadWeights(const BlockFormat& format, const BlockCodes& parts, float* weights);

// Null for a name that is none.
const BlockFormat* FindBlockFormat(std::string_view name);
// "Q4_0, Q4_1, ..."
std::string BlockFormatNames();

}  // namespace tandem
