// e2m1, two in a byte, the first in the lower half. NVFP4: groups of 16 with scales in e4m3 and one
// for the tensor, which compressed-tensors divides by and ModelOpt and Quark multiply with. MXFP4:
// groups of 32 with powers of two.

#include <cmath>
#include <span>

#include "engine_core/weights/quantized/layouts.h"

namespace tandem {
namespace {

// Twice the number, so that it is an integer; the scales are halved.
constexpr int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

StatusOr<std::vector<float>> Nvfp4Scales(const ModuleTensors& tensors, int64_t rows,
                                         int64_t num_groups) {
  ASSIGN_OR_RETURN(std::vector<float> scales, tensors.Floats(".weight_scale", {rows, num_groups}));
  const bool is_divisor = tensors.Has(".weight_global_scale");
  const std::string_view suffix = is_divisor ? ".weight_global_scale" : ".weight_scale_2";
  ASSIGN_OR_RETURN(const float global, tensors.Scalar(suffix));
  for (float& scale : scales) {
    scale = (is_divisor ? scale / global : scale * global) / 2;
    if (!std::isfinite(scale)) return tensors.Error(suffix, "makes a scale infinite or no number");
  }
  return scales;
}

// Half the scale that is stored as its exponent.
StatusOr<float> HalfPowerOf(const ModuleTensors& tensors, std::string_view suffix,
                            std::byte exponent) {
  ASSIGN_OR_RETURN(const float power, tensors.PowerOf(suffix, exponent));
  return power / 2;
}

StatusOr<std::vector<float>> Mxfp4Scales(const ModuleTensors& tensors, int64_t rows,
                                         int64_t num_groups) {
  ASSIGN_OR_RETURN(const StoredTensor stored,
                   tensors.Get(".weight_scale", "U8", {rows, num_groups}));
  std::vector<float> scales;
  for (const std::byte exponent : stored.bytes()) {
    ASSIGN_OR_RETURN(scales.emplace_back(), HalfPowerOf(tensors, ".weight_scale", exponent));
  }
  return scales;
}

// Of some bytes, each two numbers.
void Unpack(std::span<const std::byte> bytes, int8_t* out) {
  for (const std::byte pair : bytes) {
    *out++ = kTwice[static_cast<uint8_t>(pair) & 15];
    *out++ = kTwice[static_cast<uint8_t>(pair) >> 4];
  }
}

}  // namespace

StatusOr<DecodedMatrix> DecodeFp4(const ModuleTensors& tensors, MatrixShape shape,
                                  const CheckpointQuantization& /*quantization*/) {
  const int64_t rows = shape.rows, columns = shape.columns;
  const std::string_view suffix = tensors.Has(".weight_packed") ? ".weight_packed" : ".weight";
  const bool is_mxfp4 = tensors.DTypeOf(".weight_scale") == "U8";
  DecodedMatrix codes(DType::kI8, rows, columns);
  codes.group_size = is_mxfp4 ? 32 : 16;
  if (columns % codes.group_size != 0) {
    return tensors.Error(suffix, "has " + std::to_string(columns) +
                                     " inputs, must be a multiple of " +
                                     std::to_string(codes.group_size));
  }
  ASSIGN_OR_RETURN(const StoredTensor stored, tensors.Get(suffix, "U8", {rows, columns / 2}));
  ASSIGN_OR_RETURN(codes.scales, is_mxfp4 ? Mxfp4Scales(tensors, rows, codes.num_groups())
                                          : Nvfp4Scales(tensors, rows, codes.num_groups()));
  Unpack(stored.bytes(), codes.Row<int8_t>(0));
  return codes;
}

StatusOr<DecodedMatrix> DecodeMxfp4OfStack(const ModuleTensors& tensors, MatrixShape shape,
                                           int64_t idx, int64_t count, Slice rows, int64_t step) {
  constexpr int64_t kGroup = 32, kGroupBytes = kGroup / 2;
  if (shape.columns % kGroup != 0) {
    return tensors.Error(
        "_blocks", "has " + std::to_string(shape.columns) + " inputs, must be a multiple of 32");
  }
  const int64_t groups = shape.columns / kGroup;
  ASSIGN_OR_RETURN(const StoredTensor blocks,
                   tensors.Get("_blocks", "U8", {count, shape.rows, groups, kGroupBytes}));
  ASSIGN_OR_RETURN(const StoredTensor scales,
                   tensors.Get("_scales", "U8", {count, shape.rows, groups}));
  DecodedMatrix codes(DType::kI8, rows.count, shape.columns);
  codes.group_size = kGroup;
  for (int64_t i = 0; i < rows.count; ++i) {
    const auto first = static_cast<size_t>((idx * shape.rows + rows.begin + i * step) * groups);
    Unpack(blocks.bytes().subspan(first * kGroupBytes, static_cast<size_t>(groups) * kGroupBytes),
           codes.Row<int8_t>(i));
    for (const std::byte exponent : scales.bytes().subspan(first, static_cast<size_t>(groups))) {
      ASSIGN_OR_RETURN(codes.scales.emplace_back(), HalfPowerOf(tensors, "_scales", exponent));
    }
  }
  return codes;
}

}  // namespace tandem
