#include "kernels/block_format.h"

#include <string>

#include "kernels/blocks/blocks.h"

namespace tandem {
namespace {

constexpr BlockFormat kFormats[] = {
    {"Q4_0", 32, 18, ReadQ4_0},   {"Q4_1", 32, 20, ReadQ4_1},    {"Q5_0", 32, 22, ReadQ5_0},
    {"Q5_1", 32, 24, ReadQ5_1},   {"Q8_0", 32, 34, ReadQ8_0},    {"Q2_K", 256, 84, ReadQ2K},
    {"Q3_K", 256, 110, ReadQ3K},  {"Q4_K", 256, 144, ReadQ4K},   {"Q5_K", 256, 176, ReadQ5K},
    {"Q6_K", 256, 210, ReadQ6K},  {"IQ4_NL", 32, 18, ReadIq4Nl}, {"IQ4_XS", 256, 136, ReadIq4Xs},
    {"MXFP4", 32, 17, ReadMxfp4},
};

}  // namespace

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
