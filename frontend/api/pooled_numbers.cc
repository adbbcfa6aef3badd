#include "frontend/api/pooled_numbers.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

float FromBfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Nearest, ties to even.
uint16_t ToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float FromHalf(uint16_t half) {
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = half >> 10 & 31;
  const auto fraction = static_cast<float>(half & 0x3ff);
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

// Nearest, ties to even; what is too large becomes infinite.
uint16_t ToHalf(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float size = std::abs(value);
  if (std::isnan(value)) return 0x7e00;
  if (size == 0) return sign;
  if (size >= 65520.0f) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = std::max(exponent, -13);
  // 11 bits of the value, of which the first is implied unless the number is small.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(size, 11 - exponent)));
  return static_cast<uint16_t>(sign | (units + ((exponent + 13) << 10)));
}

}  // namespace

StatusOr<PooledNumbers> ReadPooled(const wire::RawValue& raw) {
  if (raw.is_nil()) return InternalError("the engine sent no result of the pooling");
  const StatusOr<wire::TensorView> tensor = wire::DecodeTensor(raw, {});
  if (!tensor.ok()) return InternalError(tensor.status().message());
  const bool is_f32 = tensor->dtype == "float32", is_half = tensor->dtype == "float16";
  const size_t width = is_f32 ? 4 : 2;
  if (!is_f32 && !is_half && tensor->dtype != "bfloat16") {
    return InternalError("the engine pooled to " + std::string(tensor->dtype));
  }
  PooledNumbers numbers;
  const std::vector<int64_t>& shape = tensor->shape;
  const size_t count = tensor->data.size() / width;
  numbers.is_matrix = shape.size() == 2;
  numbers.num_columns = shape.empty() ? 1 : static_cast<size_t>(shape.back());
  const size_t num_rows = numbers.is_matrix ? static_cast<size_t>(shape[0]) : 1;
  if (shape.size() > 2 || (numbers.is_matrix && numbers.num_columns == 0) ||
      num_rows * numbers.num_columns != count || count * width != tensor->data.size()) {
    return InternalError("the engine pooled to a tensor of an unexpected shape");
  }
  numbers.values.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const char* from = tensor->data.data() + i * width;
    uint16_t half = 0;
    if (is_f32) {
      std::memcpy(&numbers.values[i], from, 4);
    } else {
      std::memcpy(&half, from, 2);
      numbers.values[i] = is_half ? FromHalf(half) : FromBfloat16(half);
    }
  }
  return numbers;
}

void AppendNumbers(const PooledNumbers& numbers, std::string* out) {
  char text[32];
  if (numbers.is_matrix) out->push_back('[');
  for (size_t i = 0; i < numbers.values.size(); ++i) {
    const bool begins = i % numbers.num_columns == 0;
    if (begins && i > 0) out->append("],[");
    if (begins && i == 0) out->push_back('[');
    if (!begins) out->push_back(',');
    const float value = numbers.values[i];
    if (std::isfinite(value)) {
      out->append(text, std::to_chars(text, text + sizeof text, value).ptr);
    } else {
      out->append("null");
    }
  }
  if (numbers.values.empty()) out->push_back('[');
  out->push_back(']');
  if (numbers.is_matrix) out->push_back(']');
}

std::string BytesOf(const PooledNumbers& numbers, EmbedType type, bool big_endian) {
  const size_t width = type == EmbedType::kFloat32 ? 4 : 2;
  std::string bytes(numbers.values.size() * width, '\0');
  for (size_t i = 0; i < numbers.values.size(); ++i) {
    const float value = numbers.values[i];
    char* to = bytes.data() + i * width;
    if (type == EmbedType::kFloat32) {
      auto bits = std::bit_cast<uint32_t>(value);
      if (big_endian) bits = __builtin_bswap32(bits);
      std::memcpy(to, &bits, width);
    } else {
      uint16_t bits = type == EmbedType::kFloat16 ? ToHalf(value) : ToBfloat16(value);
      if (big_endian) bits = __builtin_bswap16(bits);
      std::memcpy(to, &bits, width);
    }
  }
  return bytes;
}

std::string_view EmbedTypeName(EmbedType type) {
  return type == EmbedType::kFloat32   ? "float32"
         : type == EmbedType::kFloat16 ? "float16"
                                       : "bfloat16";
}

}  // namespace tandem
