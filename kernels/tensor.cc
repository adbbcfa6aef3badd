#include "kernels/tensor.h"

#include <cmath>
#include <cstring>
#include <ostream>

namespace tandem {

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kBf16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kI32:
      return "int32";
    case DType::kI8:
      return "int8";
  }
  return "unknown";
}

float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = half >> 10 & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  const uint32_t new_exponent = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | new_exponent << 23 | mantissa << 13);
}

namespace {

float LoadFloat(const std::byte* memory, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kBf16:
      return ToFloat(reinterpret_cast<const Bf16*>(memory)[i]);
    case DType::kF16:
      return HalfToFloat(reinterpret_cast<const uint16_t*>(memory)[i]);
    default:
      return reinterpret_cast<const float*>(memory)[i];
  }
}

}  // namespace

void ConvertTensor(const Tensor& out, const Tensor& x) {
  CHECK(out.rank == x.rank && out.shape == x.shape) << "rank " << out.rank << " and " << x.rank;
  const int64_t row_size = x.RowSize();
  for (int64_t row = 0; row < x.rows(); ++row) {
    const auto* from = static_cast<const std::byte*>(x.data) + row * x.row_stride * SizeOf(x.dtype);
    auto* to = static_cast<std::byte*>(out.data) + row * out.row_stride * SizeOf(out.dtype);
    if (out.dtype == x.dtype) {
      std::memcpy(to, from, row_size * SizeOf(x.dtype));
      continue;
    }
    CHECK(x.dtype != DType::kI32 && x.dtype != DType::kI8) << DTypeName(x.dtype);
    CHECK(out.dtype == DType::kF32 || out.dtype == DType::kBf16) << DTypeName(out.dtype);
    for (int64_t i = 0; i < row_size; ++i) {
      const float value = LoadFloat(from, x.dtype, i);
      if (out.dtype == DType::kF32) {
        reinterpret_cast<float*>(to)[i] = value;
      } else {
        reinterpret_cast<Bf16*>(to)[i] = ToBf16(value);
      }
    }
  }
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  out << DTypeName(x.dtype) << "[";
  for (int i = 0; i < x.rank; ++i) out << (i ? ", " : "") << x.shape[i];
  return out << "]";
}

}  // namespace tandem
