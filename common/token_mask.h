#pragma once

// Which tokens may come next, as one bit each: bit i % 32 of word i / 32. Pure; any thread.

#include <cstdint>
#include <span>

#include "common/ids.h"

namespace tandem {

// False for what the mask has no bit for.
inline bool IsAllowed(std::span<const int32_t> mask, TokenId id) {
  const auto word = static_cast<size_t>(id) / 32;
  return id >= 0 && word < mask.size() && (mask[word] >> (id % 32) & 1) != 0;
}

}  // namespace tandem
