#include "engine_core/models/weight_formats.h"

#include "common/check.h"

namespace tandem {

WeightFormats WeightFormatsOf(std::string_view quantization) {
  if (quantization == "none") return {};
  if (quantization == "auto") return {WeightFormat::kStored, WeightFormat::kStored};
  if (quantization == "int8") return {WeightFormat::kInt8, WeightFormat::kInt8};
  if (quantization == "int4-g128") return {WeightFormat::kInt4Group128, WeightFormat::kInt8};
  CHECK(quantization == "int4" || quantization == "int4-g32") << quantization;
  return {WeightFormat::kInt4Group32, WeightFormat::kInt8};
}

}  // namespace tandem
