#include "frontend/text/byte_level.h"

#include <array>

#include "common/utf8.h"

namespace tandem {
namespace {

constexpr int kAlphabetEnd = 0x144;  // 256 + the 68 bytes that have no printable character

constexpr bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Printable bytes stand for themselves; the others take the characters from U+0100 on, in order.
constexpr std::array<char16_t, 256> MakeCharOfByte() {
  std::array<char16_t, 256> table = {};
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    table[byte] = static_cast<char16_t>(IsPrintable(byte) ? byte : next++);
  }
  return table;
}

constexpr std::array<char16_t, 256> kCharOfByte = MakeCharOfByte();

constexpr std::array<int16_t, kAlphabetEnd> MakeByteOfChar() {
  std::array<int16_t, kAlphabetEnd> table = {};
  for (auto& entry : table) entry = -1;
  for (int byte = 0; byte < 256; ++byte) table[kCharOfByte[byte]] = static_cast<int16_t>(byte);
  return table;
}

constexpr std::array<int16_t, kAlphabetEnd> kByteOfChar = MakeByteOfChar();

}  // namespace

std::optional<std::string> AlphabetToBytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t pos = 0; pos < token.size();) {
    const char32_t c = NextUtf8(token, &pos);
    if (c >= kAlphabetEnd || kByteOfChar[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOfChar[c]));
  }
  return bytes;
}

std::string BytesToAlphabet(std::string_view bytes) {
  std::string token;
  token.reserve(bytes.size() * 2);
  for (const char byte : bytes) AppendUtf8(kCharOfByte[static_cast<unsigned char>(byte)], &token);
  return token;
}

}  // namespace tandem
