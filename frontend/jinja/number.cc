#include "frontend/jinja/number.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace tandem::jinja {

std::string FormatInt(Int value) {
  const bool negative = value < 0;
  __extension__ using UnsignedInt = unsigned __int128;
  UnsignedInt rest = negative ? -static_cast<UnsignedInt>(value) : static_cast<UnsignedInt>(value);
  std::string digits;
  do {
    digits += static_cast<char>('0' + static_cast<int>(rest % 10));
    rest /= 10;
  } while (rest != 0);
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer = {};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::scientific);
  const std::string_view text(buffer.data(), result.ptr - buffer.data());
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(text);

  std::string digits;
  std::string out;
  for (const char c : text.substr(0, e)) {
    if (c == '-') {
      out += c;
    } else if (c != '.') {
      digits += c;
    }
  }
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::optional<Int> ParseInt(std::string_view digits, int base) {
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (base != 10 && digits.size() > 2 && digits[0] == '0') {
    const char prefix = static_cast<char>(digits[1] | 0x20);
    if ((base == 16 && prefix == 'x') || (base == 8 && prefix == 'o') ||
        (base == 2 && prefix == 'b')) {
      digits.remove_prefix(2);
    }
  }
  if (digits.empty()) return std::nullopt;
  Int value = 0;
  for (const char c : digits) {
    int digit = 99;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'z') digit = c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') digit = c - 'A' + 10;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<Int>(base), &value) ||
        __builtin_add_overflow(value, static_cast<Int>(digit), &value)) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

std::optional<double> ParseFloat(std::string_view text) {
  const std::string copy(text);
  // strtod also reads hexadecimal, which Python's float() refuses.
  if (copy.empty() || copy.find_first_of("xX") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size()) return std::nullopt;
  return value;
}

}  // namespace tandem::jinja
