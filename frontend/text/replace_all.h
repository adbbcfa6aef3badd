#pragma once

// Replaces a string wherever it occurs, left to right. Pure; any thread.

#include <string>
#include <string_view>

namespace tandem {

// An empty `from` occurs nowhere.
inline std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t pos = 0;
  if (!from.empty()) {
    for (size_t at = 0; (at = text.find(from, pos)) != std::string_view::npos;
         pos = at + from.size()) {
      out.append(text, pos, at - pos).append(to);
    }
  }
  return out.append(text, pos);
}

}  // namespace tandem
