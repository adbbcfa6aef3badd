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

// A type with fewer bits than float32.
struct SmallFloat {
  int num_bits;
  int num_fraction_bits;
  int min_exponent;   // of a normal number in [0.5, 1) * 2^exponent
  float least_large;  // the least number that is too large
  uint16_t large;     // what such become: infinite, or no number where a type has nothing infinite
  uint16_t nan;
};
constexpr SmallFloat kHalf = {16, 10, -13, 65520, 0x7c00, 0x7e00};
constexpr SmallFloat kE4m3 = {8, 3, -5, 464, 0x7f, 0x7f};
constexpr SmallFloat kE5m2 = {8, 2, -13, 61440, 0x7c, 0x7f};

// Nearest, ties to even.
uint16_t ToSmall(const SmallFloat& type, float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 1 << (type.num_bits - 1) : 0);
  const float size = std::abs(value);
  if (std::isnan(value)) return type.nan;
  if (size == 0) return sign;
  // The least large number of e4m3 lies between two numbers, of which the lower one is even.
  const bool is_tie_down = type.large == type.nan && size == type.least_large;
  if (size >= type.least_large && !is_tie_down) return sign | type.large;
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = std::max(exponent, type.min_exponent);
  // The first bit of the value is implied unless the number is small.
  const float scaled = std::ldexp(size, type.num_fraction_bits + 1 - exponent);
  const auto units = static_cast<int>(std::nearbyint(scaled));
  return static_cast<uint16_t>(
      sign | (units + ((exponent - type.min_exponent) << type.num_fraction_bits)));
}

uint16_t BitsOf(EmbedType type, float value) {
  if (type == EmbedType::kFloat16) return ToSmall(kHalf, value);
  if (type == EmbedType::kFloat8E4m3) return ToSmall(kE4m3, value);
  if (type == EmbedType::kFloat8E5m2) return ToSmall(kE5m2, value);
  return ToBfloat16(value);
}

size_t WidthOf(EmbedType type) {
  if (type == EmbedType::kFloat32) return 4;
  return type == EmbedType::kFloat8E4m3 || type == EmbedType::kFloat8E5m2 ? 1 : 2;
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
  const size_t width = WidthOf(type);
  std::string bytes(numbers.values.size() * width, '\0');
  for (size_t i = 0; i < numbers.values.size(); ++i) {
    const float value = numbers.values[i];
    char* to = bytes.data() + i * width;
    if (type == EmbedType::kFloat32) {
      auto bits = std::bit_cast<uint32_t>(value);
      if (big_endian) bits = __builtin_bswap32(bits);
      std::memcpy(to, &bits, width);
    } else {
      uint16_t bits = BitsOf(type, value);
      if (big_endian && width == 2) bits = __builtin_bswap16(bits);
      std::memcpy(to, &bits, width);  // of one byte the lower one
    }
  }
  return bytes;
}

std::string_view EmbedTypeName(EmbedType type) {
  constexpr std::string_view kNames[] = {"float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"};
  return kNames[static_cast<size_t>(type)];
}

}  // namespace tandem
