#pragma once

// How a model's matrices are kept, by the names that --quantization has for it. Values, any thread.

#include <string_view>

#include "kernels/backend.h"

namespace tandem {

// What routes tokens to experts, and rows that are only read, stay in the compute type.
struct WeightFormats {
  WeightFormat layers = WeightFormat::kCompute;     // of the decoder layers
  WeightFormat embedding = WeightFormat::kCompute;  // the embedding and lm_head
};

// REQUIRES one of the flag's choices. int4 is int4-g32.
WeightFormats WeightFormatsOf(std::string_view quantization);

}  // namespace tandem
