#include "common/shorten.h"

#include "common/utf8.h"

namespace tandem {

std::string Shorten(std::string_view text, size_t max_bytes) {
  constexpr size_t kMaxContinuations = 3;  // of one character
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes;
  while (end > 0 && max_bytes - end < kMaxContinuations && IsUtf8Continuation(text[end])) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace tandem
