#pragma once

// Characters in UTF-8 text. Pure; any thread. Positions and sizes are bytes.
// Where "well-formed" is required, the caller has checked with FindInvalidUtf8 (common/strings.h).

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

constexpr char32_t kReplacementChar = 0xFFFD;

// The sequence that starts at bytes[pos]: one character, or the longest part of a broken one
// (never empty). REQUIRES pos < bytes.size().
struct Utf8Sequence {
  char32_t code_point;  // kReplacementChar when broken
  size_t size;
  bool well_formed;
  bool truncated;  // broken only because the bytes end here
};
Utf8Sequence ReadUtf8(std::string_view bytes, size_t pos);

// Decodes the character at *pos and moves *pos past it. REQUIRES well-formed text, *pos in it.
inline char32_t NextUtf8(std::string_view text, size_t* pos) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t i = *pos;
  const unsigned lead = byte(i);
  if (lead < 0x80) {
    *pos = i + 1;
    return lead;
  }
  if (lead < 0xE0) {
    *pos = i + 2;
    return (lead & 0x1F) << 6 | (byte(i + 1) & 0x3F);
  }
  if (lead < 0xF0) {
    *pos = i + 3;
    return (lead & 0x0F) << 12 | (byte(i + 1) & 0x3F) << 6 | (byte(i + 2) & 0x3F);
  }
  *pos = i + 4;
  return (lead & 0x07) << 18 | (byte(i + 1) & 0x3F) << 12 | (byte(i + 2) & 0x3F) << 6 |
         (byte(i + 3) & 0x3F);
}

inline bool IsUtf8Continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

void AppendUtf8(char32_t code_point, std::string* out);

// Appends bytes with every broken part replaced by one U+FFFD, as browsers and Rust do.
void AppendLossyUtf8(std::string_view bytes, std::string* out);

// Number of characters. REQUIRES well-formed text.
size_t CountUtf8(std::string_view text);

}  // namespace tandem
