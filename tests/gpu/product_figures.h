#pragma once

// Times of products with a matrix in bf16, in codes of 4 bits and in e4m3, from the rows of one
// decode to those of prompts. Thread: the caller's.

#include <string>
#include <vector>

#include "kernels/backend.h"

namespace tandem {

struct ProductFigure {
  std::string name;
  double seconds = 0;
  double bytes = 0;  // of the matrix
  double flops = 0;
};

std::vector<ProductFigure> MeasureProducts(Backend* backend, bool is_tiny);

}  // namespace tandem
