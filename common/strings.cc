#include "common/strings.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "common/check.h"

namespace tandem {

std::string ToLower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view StripAscii(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string WithCommas(int64_t value) {
  std::string text = std::to_string(value);
  const int64_t first = value < 0 ? 1 : 0;
  for (int64_t i = static_cast<int64_t>(text.size()) - 3; i > first; i -= 3) {
    text.insert(static_cast<size_t>(i), ",");
  }
  return text;
}

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

namespace {

// From `begin` on, in steps of a word.
size_t SkipAscii(std::string_view text, size_t begin) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  uint64_t word;
  for (; text.size() - begin >= sizeof(word); begin += sizeof(word)) {
    std::memcpy(&word, text.data() + begin, sizeof(word));
    if ((word & kHighBits) != 0) break;
  }
  return begin;
}

}  // namespace

size_t FindInvalidUtf8(std::string_view text) {
  size_t i = SkipAscii(text, 0);
  while (i < text.size()) {
    const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      i = SkipAscii(text, i + 1);
      continue;
    }
    // The second byte's range excludes overlong forms, surrogates and values past U+10FFFF.
    size_t length;
    unsigned char low = 0x80, high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
      length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      length = 3;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      length = 4;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return i;
    }
    if (text.size() - i < length || byte(i + 1) < low || byte(i + 1) > high) return i;
    for (size_t k = i + 2; k < i + length; ++k) {
      if ((byte(k) & 0xC0) != 0x80) return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

std::string HexEncode(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::optional<std::string> HexDecode(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    unsigned value;
    const auto [end, error] = std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    if (error != std::errc() || end != hex.data() + i + 2) return std::nullopt;
    bytes += static_cast<char>(value);
  }
  return bytes;
}

std::string RandomHex(int count) {
  std::string bytes((static_cast<size_t>(count) + 1) / 2, '\0');
  CHECK_EQ(getrandom(bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return HexEncode(bytes).substr(0, static_cast<size_t>(count));
}

std::string PercentDecode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte =
        text[i] == '%' && i + 2 < text.size() ? HexDecode(text.substr(i + 1, 2)) : std::nullopt;
    decoded += byte ? *byte : std::string(1, text[i]);
    if (byte) i += 2;
  }
  return decoded;
}

}  // namespace tandem
