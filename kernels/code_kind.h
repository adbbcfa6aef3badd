#pragma once

// What a byte of a matrix in codes stands for, before its zero and scale. A value.

#include <cstdint>

namespace tandem {

enum class CodeKind : uint8_t {
  kInteger,  // itself, signed
  kFloat8,   // e4m3 (kernels/float8.h)
  kTable,    // one of 16 numbers
};

}  // namespace tandem
