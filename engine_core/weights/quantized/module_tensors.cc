#include "engine_core/weights/quantized/module_tensors.h"

#include <cstring>

#include "common/shape_text.h"
#include "engine_core/weights/quantized/code_words.h"
#include "kernels/float8.h"

namespace tandem {
namespace {

bool IsFloat(std::string_view dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F8_E4M3";
}

}  // namespace

Status ModuleTensors::Error(std::string_view suffix, const std::string& problem) const {
  return InvalidArgumentError("tensor " + NameOf(suffix) + " " + problem);
}

std::string ModuleTensors::DTypeOf(std::string_view suffix) const {
  if (!Has(suffix)) return "";
  const auto tensor = weights_->GetStored(NameOf(suffix));
  return tensor.ok() ? tensor->dtype() : "";
}

StatusOr<StoredTensor> ModuleTensors::Get(std::string_view suffix) const {
  return weights_->GetStored(NameOf(suffix));
}

StatusOr<StoredTensor> ModuleTensors::Get(std::string_view suffix, std::string_view dtype) const {
  ASSIGN_OR_RETURN(StoredTensor tensor, Get(suffix));
  if (tensor.dtype() != dtype) {
    return Error(suffix, "has dtype " + tensor.dtype() + ", must be " + std::string(dtype));
  }
  return tensor;
}

StatusOr<StoredTensor> ModuleTensors::Get(std::string_view suffix, std::string_view dtype,
                                          std::initializer_list<int64_t> shape) const {
  ASSIGN_OR_RETURN(StoredTensor tensor, Get(suffix, dtype));
  RETURN_IF_ERROR(CheckShape(suffix, tensor, shape));
  return tensor;
}

Status ModuleTensors::CheckShape(std::string_view suffix, const StoredTensor& tensor,
                                 std::initializer_list<int64_t> shape) const {
  if (tensor.shape() == std::vector<int64_t>(shape)) return OkStatus();
  return Error(suffix, "has shape " + ShapeText(tensor.shape()) + ", must be " + ShapeText(shape));
}

StatusOr<std::vector<float>> ModuleTensors::Floats(std::string_view suffix,
                                                   std::initializer_list<int64_t> shape) const {
  ASSIGN_OR_RETURN(const StoredTensor tensor, Get(suffix));
  if (!IsFloat(tensor.dtype())) {
    return Error(suffix, "has dtype " + tensor.dtype() + ", must be F32, F16, BF16 or F8_E4M3");
  }
  RETURN_IF_ERROR(CheckShape(suffix, tensor, shape));
  return FloatsOf(tensor);
}

StatusOr<float> ModuleTensors::Scalar(std::string_view suffix) const {
  ASSIGN_OR_RETURN(const StoredTensor tensor, Get(suffix));
  if (!IsFloat(tensor.dtype()) || tensor.num_elements() != 1) {
    return Error(suffix, "has dtype " + tensor.dtype() + " and shape " + ShapeText(tensor.shape()) +
                             ", must be one float");
  }
  return FloatsOf(tensor)[0];
}

StatusOr<std::vector<uint32_t>> ModuleTensors::Words(std::string_view suffix,
                                                     std::initializer_list<int64_t> shape) const {
  ASSIGN_OR_RETURN(const StoredTensor tensor, Get(suffix, "I32", shape));
  return WordsOf(tensor);
}

std::vector<float> FloatsOf(const StoredTensor& tensor) {
  CHECK(IsFloat(tensor.dtype())) << tensor.dtype();
  std::vector<float> numbers(static_cast<size_t>(tensor.num_elements()));
  const std::byte* bytes = tensor.bytes().data();
  const auto half_at = [bytes](size_t i) {
    uint16_t half;
    std::memcpy(&half, bytes + i * sizeof half, sizeof half);
    return half;
  };
  if (tensor.dtype() == "F32") {
    std::memcpy(numbers.data(), bytes, numbers.size() * sizeof(float));
  } else if (tensor.dtype() == "F16") {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = HalfToFloat(half_at(i));
  } else if (tensor.dtype() == "BF16") {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = ToFloat(Bf16{half_at(i)});
  } else {
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = Float8ToFloat(static_cast<uint8_t>(bytes[i]));
    }
  }
  return numbers;
}

}  // namespace tandem
