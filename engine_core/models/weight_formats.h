#pragma once

// How a model's matrices are kept, by the names that --quantization has for it. Values, any thread.

#include <array>
#include <string_view>

#include "kernels/backend.h"

namespace tandem {

// What routes tokens to experts, and rows that are only read, stay in the compute type.
struct WeightFormats {
  WeightFormat layers = WeightFormat::kCompute;     // of the decoder layers
  WeightFormat embedding = WeightFormat::kCompute;  // the embedding and lm_head
};

inline constexpr std::array<std::string_view, 5> kQuantizations = {"none", "int8", "int4",
                                                                   "int4-g32", "int4-g128"};

// REQUIRES one of kQuantizations. int4 is int4-g32.
WeightFormats WeightFormatsOf(std::string_view quantization);

}  // namespace tandem
