#pragma once

// Texts of PCRE2: what it says of an error of its functions, and patterns of literals. Pure; any
// thread. Who includes it links PCRE2.

#include <array>
#include <string>
#include <string_view>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tandem {

inline std::string Pcre2ErrorText(int error) {
  std::array<PCRE2_UCHAR, 256> buffer = {};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// A pattern that matches just that.
inline std::string Pcre2Literal(std::string_view literal) {
  std::string pattern;
  for (const char c : literal) {
    if (std::string_view("\\^$.[]|()?*+{}-#&").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace tandem
