#pragma once

// Small text functions that both processes need. Pure; any thread.

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

std::string ToLower(std::string_view text);  // ASCII only
std::vector<std::string_view> Split(std::string_view text, char separator);
std::string_view StripAscii(std::string_view text);  // blanks, tabs and line ends on both sides

template <class T>
std::optional<T> ParseNumber(std::string_view text) {
  T value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string WithCommas(int64_t value);  // 1234567 -> "1,234,567"

// Number of single-character edits between two words; for "did you mean".
int EditDistance(std::string_view a, std::string_view b);

// Index of the first byte that is not part of well-formed UTF-8, or npos. Surrogates and overlong
// forms are not well-formed.
size_t FindInvalidUtf8(std::string_view text);

// `count` lower-case hex digits that are unlikely to repeat (from the kernel's random source).
std::string RandomHex(int count);
std::string HexEncode(std::string_view bytes);
std::optional<std::string> HexDecode(std::string_view hex);
// "%20" -> " "; what is not such an escape stays.
std::string PercentDecode(std::string_view text);

}  // namespace tandem
