#include "kernels/cpu/block_panel.h"

#include <cstring>

namespace tandem {
namespace {

constexpr uint32_t kEachByte = 0x01010101;

// A plane of the codes of 32 weights: bits [low_bits, low_bits + bits) of each.
void WritePlane(const uint8_t* codes, int bits, int low_bits, uint8_t* words) {
  const uint32_t mask = ((1u << bits) - 1) * kEachByte;
  const int per_word = 8 / bits;
  for (int w = 0; w < bits; ++w) {
    uint32_t word = 0;
    for (int u = 0; u < per_word; ++u, codes += 4) {
      uint32_t unit;
      std::memcpy(&unit, codes, sizeof unit);
      word |= (unit >> low_bits & mask) << (u * bits);
    }
    std::memcpy(words + w * kPanelColumns * 4, &word, sizeof word);
  }
}

void ReadPlane(const uint8_t* words, int bits, int low_bits, uint8_t* codes) {
  const uint32_t mask = ((1u << bits) - 1) * kEachByte;
  const int per_word = 8 / bits;
  for (int w = 0; w < bits; ++w) {
    uint32_t word;
    std::memcpy(&word, words + w * kPanelColumns * 4, sizeof word);
    for (int u = 0; u < per_word; ++u, codes += 4) {
      uint32_t unit;
      std::memcpy(&unit, codes, sizeof unit);
      unit |= (word >> (u * bits) & mask) << low_bits;
      std::memcpy(codes, &unit, sizeof unit);
    }
  }
}

}  // namespace

BlockPanelShape::BlockPanelShape(const BlockFormat& block_format) : format(block_format) {
  using enum GroupScales;
  const GroupScales scales = format.scales;
  has_float_scale = scales == kFloat || scales == kFloatZero;
  has_scale = scales != kPower;
  has_offset = format.has_offsets();
  has_group_scales = scales == kInteger || scales == kIntegerOffset || scales == kPower;
  has_group_offsets = scales == kIntegerOffset || scales == kFloatZero;
  const int64_t group_bytes = format.num_groups() * kPanelColumns;
  int64_t end = has_scale ? kPanelColumns * (has_float_scale ? 4 : 2) : 0;
  offset = end;
  end += has_offset ? kPanelColumns * 2 : 0;
  group_scales = end;
  end += has_group_scales ? group_bytes : 0;
  group_offsets = end;
  end += has_group_offsets ? group_bytes : 0;
  codes = end;
  code_bytes = format.bits * kPanelColumns * 4;
  num_bytes = codes + format.size / kGroupWeights * code_bytes;
  zero = format.values != nullptr ? kInt8Zero : format.zero;
  for (int code = 0; format.values != nullptr && code < 16; ++code) {
    table[code] = static_cast<uint8_t>(format.values[code] + kInt8Zero);
  }
}

void BlockPanelShape::Write(const BlockCodes& parts, int64_t block, int64_t lane,
                            uint8_t* panel) const {
  uint8_t* const to = panel + block * num_bytes;
  if (has_float_scale) {
    std::memcpy(to + lane * 4, &parts.float_scale, sizeof parts.float_scale);
  } else if (has_scale) {
    std::memcpy(to + lane * 2, &parts.scale, sizeof parts.scale);
  }
  if (has_offset) std::memcpy(to + offset + lane * 2, &parts.offset, sizeof parts.offset);
  for (int64_t group = 0; group < format.num_groups(); ++group) {
    const int64_t at = group * kPanelColumns + lane;
    if (has_group_scales) to[group_scales + at] = parts.group_scales[group];
    if (has_group_offsets) to[group_offsets + at] = parts.group_offsets[group];
  }
  const CodePlanes planes = PlanesOf(format.bits);
  for (int64_t i = 0; i < format.size / kGroupWeights; ++i) {
    uint8_t* const words = to + codes + i * code_bytes + lane * 4;
    const uint8_t* const from = parts.codes + i * kGroupWeights;
    WritePlane(from, planes.low, 0, words);
    if (planes.high == 0) continue;
    WritePlane(from, planes.high, planes.low, words + planes.low * kPanelColumns * 4);
  }
}

void BlockPanelShape::Read(const uint8_t* panel, int64_t block, int64_t lane,
                           BlockCodes* parts) const {
  const uint8_t* const from = panel + block * num_bytes;
  if (has_float_scale) {
    std::memcpy(&parts->float_scale, from + lane * 4, sizeof parts->float_scale);
  } else if (has_scale) {
    std::memcpy(&parts->scale, from + lane * 2, sizeof parts->scale);
  }
  if (has_offset) std::memcpy(&parts->offset, from + offset + lane * 2, sizeof parts->offset);
  for (int64_t group = 0; group < format.num_groups(); ++group) {
    const int64_t at = group * kPanelColumns + lane;
    if (has_group_scales) parts->group_scales[group] = from[group_scales + at];
    if (has_group_offsets) parts->group_offsets[group] = from[group_offsets + at];
  }
  const CodePlanes planes = PlanesOf(format.bits);
  std::memset(parts->codes, 0, static_cast<size_t>(format.size));
  for (int64_t i = 0; i < format.size / kGroupWeights; ++i) {
    const uint8_t* const words = from + codes + i * code_bytes + lane * 4;
    uint8_t* const to = parts->codes + i * kGroupWeights;
    ReadPlane(words, planes.low, 0, to);
    if (planes.high == 0) continue;
    ReadPlane(words + planes.low * kPanelColumns * 4, planes.high, planes.low, to);
  }
}

}  // namespace tandem
