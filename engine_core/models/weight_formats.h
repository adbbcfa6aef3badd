#pragma once

// How a model's matrices are stored, by the values of --quantization. Values, any thread.

#include <string_view>

#include "kernels/backend.h"

namespace tandem {

// Routers and tables that are only looked up (learned positions) stay in the compute type.
struct WeightFormats {
  WeightFormat layers = WeightFormat::kCompute;     // decoder layers
  WeightFormat embedding = WeightFormat::kCompute;  // embedding and lm_head
};

// REQUIRES: one of the values of the flag that name no checkpoint's method. int4 is int4-g32; auto:
// as the checkpoint stores them.
WeightFormats WeightFormatsOf(std::string_view quantization);

}  // namespace tandem
