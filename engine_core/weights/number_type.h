#pragma once

// The names of floating-point types in checkpoints, safetensors and GGUF alike: "F32", "F16" and
// "BF16". Pure; any thread.

#include <optional>
#include <string_view>

#include "kernels/tensor.h"

namespace tandem {

// nullopt: another type, such as codes of a quantization.
constexpr std::optional<DType> NumberTypeOf(std::string_view name) {
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBf16;
  return std::nullopt;
}

}  // namespace tandem
