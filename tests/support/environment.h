#pragma once

// Numbers that the environment sets for a longer run of a test or to repeat one: TANDEM_SEED,
// TANDEM_CASES.

#include <cstdint>
#include <cstdlib>

namespace tandem {

inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace tandem
