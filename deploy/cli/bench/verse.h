#pragma once

// Generates lines of verse of about ten syllables, for prompts that look like poems. Pure: line `i`
// of a seed is always the same.

#include <cstdint>
#include <string>

namespace tandem {

std::string VerseLine(uint64_t seed, uint64_t i);

}  // namespace tandem
