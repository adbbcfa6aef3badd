// bitsandbytes. 4 bits: weight holds two codes in a byte, the first in the upper half, of the
// whole matrix row after row (U8, or the bytes of another type, bnb_4bit_quant_storage);
// weight.quant_map has the numbers that codes stand for (nf4 or fp4), weight.absmax the scale of
// each run of blocksize numbers, or codes of these scales ("nested"). 8 bits: weight I8 [N, K], SCB
// [N], the largest number of each row, weight_format U8 [], 0.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "engine_core/weights/json_fields.h"
#include "engine_core/weights/json_file.h"
#include "engine_core/weights/quantized/layouts.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kCodes = ".weight", kScales = ".weight.absmax",
                           kMap = ".weight.quant_map", kRowScales = ".SCB",
                           kOrder = ".weight_format", kNestedScales = ".weight.nested_absmax",
                           kNestedMap = ".weight.nested_quant_map";
constexpr int64_t kMaxBlock = 1 << 20;

// The JSON that stands in a tensor of its own.
struct QuantState {
  int64_t block_size = 0;
  int64_t nested_block_size = 0;
  double nested_offset = 0;
};

StatusOr<QuantState> ReadQuantState(const ModuleTensors& tensors) {
  const std::string_view suffix = tensors.Has(".weight.quant_state.bitsandbytes__fp4")
                                      ? ".weight.quant_state.bitsandbytes__fp4"
                                      : ".weight.quant_state.bitsandbytes__nf4";
  ASSIGN_OR_RETURN(const StoredTensor stored, tensors.Get(suffix, "U8"));
  const auto* text = reinterpret_cast<const char*>(stored.bytes().data());
  const auto json = ParseJsonObject({text, stored.bytes().size()});
  if (!json.ok()) return tensors.Error(suffix, json.status().message());
  QuantState state;
  const auto read = [&]() -> Status {
    RETURN_IF_ERROR(ReadSize(*json, "blocksize", kMaxBlock, -1, &state.block_size));
    RETURN_IF_ERROR(
        ReadSize(*json, "nested_blocksize", kMaxBlock, kMaxBlock, &state.nested_block_size));
    const Json* const offset = Find(*json, "nested_offset");
    if (offset == nullptr) return OkStatus();
    if (!offset->is_number()) return BadValue("nested_offset", *offset, "a number");
    state.nested_offset = offset->get<double>();
    return OkStatus();
  };
  const Status status = read();
  if (!status.ok()) return tensors.Error(suffix, "has a bad value: " + status.message());
  return state;
}

int64_t NumBlocks(int64_t count, int64_t size) { return (count + size - 1) / size; }

StatusOr<std::vector<float>> ReadScales(const ModuleTensors& tensors, const QuantState& state,
                                        int64_t num_blocks) {
  if (tensors.DTypeOf(kScales) != "U8") return tensors.Floats(kScales, {num_blocks});
  ASSIGN_OR_RETURN(const StoredTensor codes, tensors.Get(kScales, "U8", {num_blocks}));
  ASSIGN_OR_RETURN(const std::vector<float> map, tensors.Floats(kNestedMap, {256}));
  ASSIGN_OR_RETURN(const std::vector<float> nested,
                   tensors.Floats(kNestedScales, {NumBlocks(num_blocks, state.nested_block_size)}));
  const auto offset = static_cast<float>(state.nested_offset);
  std::vector<float> scales;
  for (int64_t i = 0; i < num_blocks; ++i) {
    const auto code = static_cast<size_t>(codes.bytes()[static_cast<size_t>(i)]);
    scales.push_back(map[code] * nested[static_cast<size_t>(i / state.nested_block_size)] + offset);
  }
  return scales;
}

}  // namespace

StatusOr<DecodedMatrix> DecodeBitsandbytes4(const ModuleTensors& tensors, MatrixShape shape,
                                            const CheckpointQuantization& /*quantization*/) {
  const int64_t count = shape.rows * shape.columns;
  ASSIGN_OR_RETURN(const StoredTensor stored, tensors.Get(kCodes));
  if (std::cmp_not_equal(stored.bytes().size(), NumBlocks(count, 2))) {
    return tensors.Error(kCodes, "has " + std::to_string(stored.bytes().size()) +
                                     " bytes of codes, must have " +
                                     std::to_string(NumBlocks(count, 2)));
  }
  ASSIGN_OR_RETURN(const QuantState state, ReadQuantState(tensors));
  ASSIGN_OR_RETURN(const std::vector<float> map, tensors.Floats(kMap, {16}));
  ASSIGN_OR_RETURN(const std::vector<float> scales,
                   ReadScales(tensors, state, NumBlocks(count, state.block_size)));
  const auto code_at = [&](int64_t i) {
    const auto pair = static_cast<uint8_t>(stored.bytes()[static_cast<size_t>(i / 2)]);
    return i % 2 == 0 ? pair >> 4 : pair & 15;
  };
  // Blocks are runs of the whole matrix, and mostly parts of rows.
  if (shape.columns % state.block_size != 0) {
    DecodedMatrix numbers(DType::kF32, shape.rows, shape.columns);
    auto* const out = numbers.Row<float>(0);
    for (int64_t i = 0; i < count; ++i) {
      out[i] =
          map[static_cast<size_t>(code_at(i))] * scales[static_cast<size_t>(i / state.block_size)];
    }
    return numbers;
  }
  DecodedMatrix codes(DType::kI8, shape.rows, shape.columns);
  auto* const out = codes.Row<int8_t>(0);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int8_t>(code_at(i));
  codes.code_kind = CodeKind::kTable;
  codes.table = map;
  codes.group_size = state.block_size;
  codes.scales = scales;
  return codes;
}

StatusOr<DecodedMatrix> DecodeBitsandbytes8(const ModuleTensors& tensors, MatrixShape shape,
                                            const CheckpointQuantization& /*quantization*/) {
  if (tensors.Has(kOrder)) {
    ASSIGN_OR_RETURN(const StoredTensor order, tensors.Get(kOrder, "U8"));
    if (order.num_elements() != 1 || order.bytes()[0] != std::byte{0}) {
      return tensors.Error(kOrder, "must be 0: rows one after another");
    }
  }
  ASSIGN_OR_RETURN(const StoredTensor stored,
                   tensors.Get(kCodes, "I8", {shape.rows, shape.columns}));
  DecodedMatrix codes(DType::kI8, shape.rows, shape.columns);
  codes.values.assign(stored.bytes().begin(), stored.bytes().end());
  ASSIGN_OR_RETURN(codes.scales, tensors.Floats(kRowScales, {shape.rows}));
  for (float& scale : codes.scales) scale /= 127;
  return codes;
}

}  // namespace tandem
