#pragma once

// One number in a log line: Format("%.1f tokens/s, ", 12.34) is "12.3 tokens/s, ". The text is cut
// at 63 characters. Pure; any thread.

#include <cstdio>
#include <string>

namespace tandem {

inline std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace tandem
