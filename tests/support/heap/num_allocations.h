#pragma once

// Counts calls of operator new, in every program that links it. Thread: any.

#include <cstdint>

namespace tandem {

int64_t NumAllocations();  // since the program's start

}  // namespace tandem
