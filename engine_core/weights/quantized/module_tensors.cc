#include "engine_core/weights/quantized/module_tensors.h"

#include <algorithm>
#include <cmath>

#include "common/shape_text.h"
#include "engine_core/weights/quantized/code_words.h"

namespace tandem {
Status ModuleTensors::Error(std::string_view suffix, const std::string& problem) const {
  return InvalidArgumentError(PlaceOf(suffix) + " " + problem);
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

StatusOr<std::vector<float>> ModuleTensors::Floats(std::string_view suffix) const {
  ASSIGN_OR_RETURN(const StoredTensor tensor, Get(suffix));
  return FiniteFloats(suffix, tensor);
}

StatusOr<std::vector<float>> ModuleTensors::Floats(std::string_view suffix,
                                                   std::initializer_list<int64_t> shape) const {
  ASSIGN_OR_RETURN(const StoredTensor tensor, Get(suffix));
  ASSIGN_OR_RETURN(std::vector<float> numbers, FiniteFloats(suffix, tensor));
  RETURN_IF_ERROR(CheckShape(suffix, tensor, shape));
  return numbers;
}

// One scale that is none makes NaN of every logit, and is found in a request, not at the start.
StatusOr<std::vector<float>> ModuleTensors::FiniteFloats(std::string_view suffix,
                                                         const StoredTensor& tensor) const {
  if (!IsFloat(tensor.dtype())) {
    return Error(suffix,
                 "has dtype " + tensor.dtype() + ", must be F64, F32, F16, BF16 or F8_E4M3");
  }
  std::vector<float> numbers = FloatsOf(tensor);
  if (std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); })) {
    return numbers;
  }
  return Error(suffix, "has a number that is infinite or none");
}

StatusOr<float> ModuleTensors::PowerOf(std::string_view suffix, std::byte exponent) const {
  if (static_cast<int>(exponent) == 255) {
    return Error(suffix, "has a scale that is not a number (255)");
  }
  return std::ldexp(1.0f, static_cast<int>(exponent) - 127);
}

StatusOr<float> ModuleTensors::Scalar(std::string_view suffix) const {
  ASSIGN_OR_RETURN(const StoredTensor tensor, Get(suffix));
  if (!IsFloat(tensor.dtype()) || tensor.num_elements() != 1) {
    return Error(suffix, "has dtype " + tensor.dtype() + " and shape " + ShapeText(tensor.shape()) +
                             ", must be one float");
  }
  ASSIGN_OR_RETURN(const std::vector<float> numbers, FiniteFloats(suffix, tensor));
  return numbers[0];
}

StatusOr<std::vector<uint32_t>> ModuleTensors::Words(std::string_view suffix,
                                                     std::initializer_list<int64_t> shape) const {
  ASSIGN_OR_RETURN(const StoredTensor tensor, Get(suffix, "I32", shape));
  return WordsOf(tensor);
}

}  // namespace tandem
