#pragma once

// The names of floating-point types in checkpoints, safetensors and GGUF alike: "F32", "F16" and
// "BF16"; and "F64", whose numbers are read as float32. Pure; any thread.

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/tensor.h"

namespace tandem {

// nullopt: another type, such as codes of a quantization.
constexpr std::optional<DType> NumberTypeOf(std::string_view name) {
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBf16;
  return std::nullopt;
}

// Whether a tensor of this type can be read as float32.
constexpr bool IsNumberType(std::string_view name) {
  return NumberTypeOf(name).has_value() || name == "F64";
}

// The bytes of as many float32. The doubles need not be aligned.
inline std::vector<std::byte> FloatsOfDoubles(std::span<const std::byte> doubles) {
  std::vector<std::byte> floats(doubles.size() / 2);
  for (size_t i = 0; i < doubles.size() / sizeof(double); ++i) {
    double number;
    std::memcpy(&number, doubles.data() + i * sizeof number, sizeof number);
    const auto rounded = static_cast<float>(number);
    std::memcpy(floats.data() + i * sizeof rounded, &rounded, sizeof rounded);
  }
  return floats;
}

}  // namespace tandem
