#pragma once

// How the files of a model end that is split over several. Pure; any thread.

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace tandem {

// "-00002-of-00005.gguf": part, from 1 on, of num_parts, and the extension.
inline std::string PartSuffix(int64_t part, int64_t num_parts, std::string_view extension) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05lld-of-%05lld", static_cast<long long>(part),
                static_cast<long long>(num_parts));
  return text + std::string(extension);
}

}  // namespace tandem
