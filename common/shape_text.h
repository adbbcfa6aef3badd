#pragma once

// The sizes of a tensor for messages: "[3, 64]". Pure; any thread.

#include <cstdint>
#include <span>
#include <string>

namespace tandem {

inline std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

}  // namespace tandem
