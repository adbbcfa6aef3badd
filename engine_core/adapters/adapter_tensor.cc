#include "engine_core/adapters/adapter_tensor.h"

#include <optional>

#include "common/shape_text.h"
#include "engine_core/weights/number_type.h"

namespace tandem {

StatusOr<AdapterTensor> AdapterTensor::Open(const std::string& name, const SafetensorsEntry& entry,
                                            std::span<const std::byte> bytes) {
  if (!IsNumberType(entry.dtype)) {
    return InvalidArgumentError(name + " has dtype " + entry.dtype +
                                ", must be F64, F32, F16 or BF16");
  }
  if (entry.shape.size() != 2 || entry.shape[0] < 1 || entry.shape[1] < 1) {
    return InvalidArgumentError(name + " has shape " + ShapeText(entry.shape) +
                                ", must be a matrix");
  }
  AdapterTensor tensor;
  const std::optional<DType> dtype = NumberTypeOf(entry.dtype);  // nullopt: F64
  if (!dtype) {
    tensor.copy_ = FloatsOfDoubles(bytes);
  } else if (reinterpret_cast<uintptr_t>(bytes.data()) % SizeOf(*dtype) != 0) {
    tensor.copy_.assign(bytes.begin(), bytes.end());
  }
  // Tensor views are also written through; this one is not.
  void* data = const_cast<std::byte*>(tensor.copy_.empty() ? bytes.data() : tensor.copy_.data());
  tensor.view_ = Tensor(data, dtype.value_or(DType::kF32), {entry.shape[0], entry.shape[1]});
  return tensor;
}

AdapterTensor AdapterTensor::Make(DType dtype, int64_t rows, int64_t columns) {
  AdapterTensor tensor;
  tensor.copy_.resize(static_cast<size_t>(rows * columns * SizeOf(dtype)));
  tensor.view_ = Tensor(tensor.copy_.data(), dtype, {rows, columns});
  return tensor;
}

}  // namespace tandem
