#pragma once

// What PCRE2 says of an error of its functions. Pure; any thread. Who includes it links PCRE2.

#include <array>
#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tandem {

inline std::string Pcre2ErrorText(int error) {
  std::array<PCRE2_UCHAR, 256> buffer = {};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace tandem
