#include "engine_core/weights/quantized/layouts.h"

namespace tandem {
namespace {

struct Layout {
  // The tensor by which a module is known to have it.
  std::string_view suffix;
  std::string_view dtype;
  // kNone: of any method.
  QuantizationMethod method;
  DecodeMatrix decode;
};

constexpr Layout kLayouts[] = {
    {".qweight", "I32", QuantizationMethod::kGptq, DecodeGptq},
    {".qweight", "I32", QuantizationMethod::kAwq, DecodeAwq},
    {".weight.quant_map", "F32", QuantizationMethod::kBitsandbytes, DecodeBitsandbytes4},
    {".weight", "U8", QuantizationMethod::kBitsandbytes, DecodeBitsandbytes4},
    {".weight", "I8", QuantizationMethod::kBitsandbytes, DecodeBitsandbytes8},
    {".weight_packed", "I32", QuantizationMethod::kCompressedTensors, DecodePackedIntegers},
    {".weight_packed", "U8", QuantizationMethod::kCompressedTensors, DecodeFp4},
    {".weight", "U8", QuantizationMethod::kModelOpt, DecodeFp4},
    {".weight", "F8_E4M3", QuantizationMethod::kNone, DecodeScaled},
    {".weight", "I8", QuantizationMethod::kCompressedTensors, DecodeScaled},
    {".weight", "I8", QuantizationMethod::kModelOpt, DecodeScaled},
};

}  // namespace

DecodeMatrix FindLayout(const ModuleTensors& tensors, const CheckpointQuantization& quantization) {
  if (quantization.method == QuantizationMethod::kNone) return nullptr;
  for (const Layout& layout : kLayouts) {
    const bool is_of_method =
        layout.method == QuantizationMethod::kNone || layout.method == quantization.method;
    if (is_of_method && tensors.DTypeOf(layout.suffix) == layout.dtype) return layout.decode;
  }
  return nullptr;
}

MatrixSource DecodedMatrix::source() {
  MatrixSource result(Tensor(values.data(), dtype, {rows, columns}));
  result.group_size = group_size;
  result.code_kind = code_kind;
  result.table = table.empty() ? nullptr : table.data();
  if (!column_groups.empty()) {
    result.column_groups = Tensor(column_groups.data(), DType::kI32, {columns});
  }
  if (!scales.empty()) result.scales = Tensor(scales.data(), DType::kF32, {rows, num_groups()});
  if (!zeros.empty()) result.zeros = Tensor(zeros.data(), DType::kF32, {rows, num_groups()});
  return result;
}

}  // namespace tandem
