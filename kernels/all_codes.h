#pragma once

// Whether all codes of a matrix fit: packers choose their form by it. Pure; any thread.

#include <algorithm>
#include <cstdint>

#include "kernels/matrix_source.h"

namespace tandem {

// fits: of an int8_t. REQUIRES: a source in codes.
template <class Fits>
bool AllCodes(const MatrixSource& source, Fits fits) {
  for (int64_t row = 0; row < source.rows(); ++row) {
    const int8_t* const codes = source.values.Row<int8_t>(row);
    if (!std::all_of(codes, codes + source.columns(), fits)) return false;
  }
  return true;
}

}  // namespace tandem
