#pragma once

// A view of numbers in a device's memory: pointer, type, shape. The arguments of ops.
// Ownership: none; OwnedTensor below holds memory. A view is a value, for any thread; the memory
// belongs to the thread that runs the op. Shapes are in elements, row-major; only the first
// dimension may be strided (row_stride elements apart), so that a column range of merged rows is a
// view too.
// Failure: a shape that does not fit is our own mistake (CHECK).

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "common/check.h"

namespace tandem {

enum class DType : uint8_t { kF32, kBf16, kF16, kI32, kI8 };

constexpr int64_t SizeOf(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kI32 ? 4 : dtype == DType::kI8 ? 1 : 2;
}
std::string_view DTypeName(DType dtype);  // "float32", "bfloat16", "float16", "int32", "int8"

// One bfloat16 number: the upper half of a float32.
struct Bf16 {
  uint16_t bits = 0;
  friend bool operator==(const Bf16&, const Bf16&) = default;
};

constexpr float ToFloat(Bf16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

// Nearest, ties to even; NaN stays NaN.
constexpr Bf16 ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

float HalfToFloat(uint16_t half);  // IEEE binary16, denormals included

struct Tensor {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape = {};
  int64_t row_stride = 0;  // elements between x[i] and x[i + 1]

  Tensor() = default;
  Tensor(void* memory, DType type, std::initializer_list<int64_t> dims)
      : data(memory), dtype(type) {
    CHECK_LE(dims.size(), shape.size());
    for (int64_t dim : dims) shape[rank++] = dim;
    row_stride = RowSize();
  }

  bool empty() const { return data == nullptr; }
  int64_t rows() const { return rank == 0 ? 0 : shape[0]; }
  int64_t RowSize() const {  // elements in x[i]
    int64_t size = 1;
    for (int i = 1; i < rank; ++i) size *= shape[i];
    return size;
  }
  int64_t NumElements() const { return rows() * RowSize(); }
  int64_t NumBytes() const { return NumElements() * SizeOf(dtype); }
  bool IsContiguous() const { return row_stride == RowSize() || rows() <= 1; }

  // x[begin : begin + count]
  Tensor Rows(int64_t begin, int64_t count) const {
    CHECK(begin >= 0 && count >= 0 && begin + count <= rows()) << begin << "+" << count;
    Tensor result = *this;
    result.data = static_cast<std::byte*>(data) + begin * row_stride * SizeOf(dtype);
    result.shape[0] = count;
    return result;
  }

  // x[:, begin : begin + count] of a matrix
  Tensor Columns(int64_t begin, int64_t count) const {
    CHECK_EQ(rank, 2);
    CHECK(begin >= 0 && count >= 0 && begin + count <= shape[1]) << begin << "+" << count;
    Tensor result = *this;
    result.data = static_cast<std::byte*>(data) + begin * SizeOf(dtype);
    result.shape[1] = count;
    return result;
  }

  // Typed pointers; the first is row 0. REQUIRES T to be what dtype says.
  template <class T>
  T* Data() const {
    CHECK(IsType<T>()) << "tensor of " << DTypeName(dtype);
    return static_cast<T*>(data);
  }
  template <class T>
  T* Row(int64_t i) const {
    return Data<T>() + i * row_stride;
  }

 private:
  template <class T>
  bool IsType() const {
    if constexpr (std::is_same_v<T, float>) return dtype == DType::kF32;
    if constexpr (std::is_same_v<T, Bf16>) return dtype == DType::kBf16;
    if constexpr (std::is_same_v<T, uint16_t>) return dtype == DType::kF16;
    if constexpr (std::is_same_v<T, int32_t>) return dtype == DType::kI32;
    if constexpr (std::is_same_v<T, int8_t>) return dtype == DType::kI8;
    return false;
  }
};

// "bfloat16[3, 64]", for messages.
std::ostream& operator<<(std::ostream& out, const Tensor& x);

// out[i] = x[i] over equal shapes, converted between float types; equal types are copied bit by
// bit.
void ConvertTensor(const Tensor& out, const Tensor& x);

// A device's memory together with its view; freed when it goes away. Movable.
class OwnedTensor {
 public:
  using Memory = std::unique_ptr<void, std::function<void(void*)>>;

  OwnedTensor() = default;
  OwnedTensor(Memory memory, Tensor view) : memory_(std::move(memory)), view_(view) {}

  const Tensor& view() const { return view_; }
  operator const Tensor&() const { return view_; }  // NOLINT(google-explicit-constructor)

 private:
  Memory memory_;
  Tensor view_;
};

}  // namespace tandem
