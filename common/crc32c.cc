#include "common/crc32c.h"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tandem {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

#if defined(__x86_64__)
// 8 bytes take three cycles, which is faster than memory is copied.
__attribute__((target("sse4.2"))) uint32_t FastCrc32c(std::span<const std::byte> bytes,
                                                      uint32_t before) {
  uint64_t rest = ~before;
  for (; bytes.size() >= sizeof(uint64_t); bytes = bytes.subspan(sizeof(uint64_t))) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof(word));
    rest = _mm_crc32_u64(rest, word);
  }
  auto last = static_cast<uint32_t>(rest);
  for (const std::byte byte : bytes) last = _mm_crc32_u8(last, static_cast<uint8_t>(byte));
  return ~last;
}
#endif

}  // namespace

uint32_t PortableCrc32c(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t rest = ~before;
  for (const std::byte byte : bytes) {
    rest = (rest >> 8) ^ kTable[(rest ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return ~rest;
}

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return FastCrc32c(bytes, before);
#endif
  return PortableCrc32c(bytes, before);
}

}  // namespace tandem
