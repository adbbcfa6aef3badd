#include "kernels/block_format.h"

#include <cmath>
#include <string>

#include "kernels/blocks/blocks.h"

namespace tandem {
namespace {

using enum GroupScales;

constexpr BlockFormat kFormats[] = {
    {"Q4_0", 32, 18, 32, 4, 8, kHalf, nullptr, ReadQ4_0},
    {"Q4_1", 32, 20, 32, 4, 0, kHalfOffset, nullptr, ReadQ4_1},
    {"Q5_0", 32, 22, 32, 5, 16, kHalf, nullptr, ReadQ5_0},
    {"Q5_1", 32, 24, 32, 5, 0, kHalfOffset, nullptr, ReadQ5_1},
    {"Q8_0", 32, 34, 32, 8, 128, kHalf, nullptr, ReadQ8_0},
    {"Q2_K", 256, 84, 16, 2, 0, kIntegerOffset, nullptr, ReadQ2K},
    {"Q3_K", 256, 110, 16, 3, 4, kInteger, nullptr, ReadQ3K},
    {"Q4_K", 256, 144, 32, 4, 0, kIntegerOffset, nullptr, ReadQ4K},
    {"Q5_K", 256, 176, 32, 5, 0, kIntegerOffset, nullptr, ReadQ5K},
    {"Q6_K", 256, 210, 16, 6, 32, kInteger, nullptr, ReadQ6K},
    {"IQ4_NL", 32, 18, 32, 4, 0, kHalf, kIq4Values, ReadIq4Nl},
    {"IQ4_XS", 256, 136, 32, 4, 0, kInteger, kIq4Values, ReadIq4Xs},
    {"MXFP4", 32, 17, 32, 4, 0, kPower, kE2m1Values, ReadMxfp4},
};

}  // namespace

GroupScale ScaleOfGroup(const BlockFormat& format, const BlockCodes& parts, int64_t group) {
  const uint8_t scale = parts.group_scales[group], offset = parts.group_offsets[group];
  switch (format.scales) {
    case kHalf:
      return {.scale = HalfToFloat(parts.scale)};
    case kHalfOffset:
      return {.scale = HalfToFloat(parts.scale), .offset = HalfToFloat(parts.offset)};
    case kInteger:
      return {.scale = HalfToFloat(parts.scale) * static_cast<float>(static_cast<int8_t>(scale))};
    case kIntegerOffset:
      return {.scale = HalfToFloat(parts.scale) * static_cast<float>(scale),
              .offset = -(HalfToFloat(parts.offset) * static_cast<float>(offset))};
    case kPower:
      return {.scale = std::ldexp(1.0f, scale - 128)};
    case kFloat:
      return {.scale = parts.float_scale};
    case kFloatZero:
      return {.scale = parts.float_scale, .zero = static_cast<int8_t>(offset)};
  }
  return {};
}

void ReadWeights(const BlockFormat& format, const BlockCodes& parts, float* weights) {
  int8_t integers[kMaxBlockSize];
  if (format.values != nullptr) {
    for (int64_t i = 0; i < format.size; ++i) integers[i] = format.values[parts.codes[i]];
  } else {
    for (int64_t i = 0; i < format.size; ++i) {
      integers[i] = static_cast<int8_t>(parts.codes[i] - format.zero);
    }
  }
  for (int64_t group = 0; group < format.num_groups(); ++group) {
    const GroupScale s = ScaleOfGroup(format, parts, group);
    const int8_t* const from = integers + group * format.group_size;
    float* const to = weights + group * format.group_size;
    for (int64_t i = 0; i < format.group_size; ++i) {
      to[i] = s.scale * static_cast<float>(from[i] - s.zero);
    }
    if (!format.has_offsets()) continue;
    for (int64_t i = 0; i < format.group_size; ++i) to[i] += s.offset;
  }
}

const BlockFormat* FindBlockFormat(std::string_view name) {
  for (const BlockFormat& format : kFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

std::string BlockFormatNames() {
  std::string names;
  for (const BlockFormat& format : kFormats) {
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  return names;
}

}  // namespace tandem
