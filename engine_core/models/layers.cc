#include "engine_core/models/layers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

namespace tandem {
namespace {

// A [columns, rows] matrix as [rows, columns].
WeightTensor Transposed(const Tensor& stored) {
  const int64_t columns = stored.shape[0], rows = stored.shape[1], size = SizeOf(stored.dtype);
  std::vector<std::byte> turned(static_cast<size_t>(rows * columns * size));
  const auto* from = static_cast<const std::byte*>(stored.data);
  // In tiles of a cache line's width on both sides: a walk along a whole column would miss the
  // cache at each number.
  constexpr int64_t kTile = 32;
  auto turn_tile = [&](int64_t row_begin, int64_t column_begin) {
    const int64_t row_end = std::min(rows, row_begin + kTile);
    const int64_t column_end = std::min(columns, column_begin + kTile);
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t column = column_begin; column < column_end; ++column) {
        std::memcpy(turned.data() + (row * columns + column) * size,
                    from + (column * rows + row) * size, static_cast<size_t>(size));
      }
    }
  };
  for (int64_t row = 0; row < rows; row += kTile) {
    for (int64_t column = 0; column < columns; column += kTile) turn_tile(row, column);
  }
  return WeightTensor(Tensor(nullptr, stored.dtype, {rows, columns}), std::move(turned));
}

StatusOr<WeightTensor> GetBlock(const LoadContext& context, const RowBlock& block, int64_t columns,
                                bool is_transposed) {
  if (block.stack_size > 0) {
    return context.weights.GetFromStack(block.name, block.stack_idx, block.stack_size, block.rows,
                                        columns);
  }
  const std::string name = block.name + ".weight";
  if (!is_transposed) return context.weights.Get(name, block.rows, columns);
  ASSIGN_OR_RETURN(const WeightTensor stored, context.weights.Get(name, columns, block.rows));
  return Transposed(stored.view());
}

}  // namespace

StatusOr<LinearLayer> LoadLinear(const LoadContext& context, std::span<const RowBlock> blocks,
                                 int64_t columns, const LinearOptions& options) {
  LinearLayer layer;
  std::vector<WeightTensor> tensors;
  std::vector<MatrixSource> sources;
  for (const RowBlock& block : blocks) {
    ASSIGN_OR_RETURN(WeightTensor tensor, GetBlock(context, block, columns, options.is_transposed));
    sources.push_back(tensor.view());
    tensors.push_back(std::move(tensor));
  }
  const WeightFormat format = options.format.value_or(context.formats.layers);
  ASSIGN_OR_RETURN(layer.weight, options.is_gated ? context.backend.PackGated(sources, format)
                                                  : context.backend.Pack(sources, format));
  if (options.has_bias) {
    ASSIGN_OR_RETURN(layer.bias, LoadBias(context, blocks));
  }
  return layer;
}

StatusOr<OwnedTensor> LoadBias(const LoadContext& context, std::span<const RowBlock> blocks) {
  int64_t rows = 0;
  for (const RowBlock& block : blocks) rows += block.rows;
  Device& device = context.backend.device();
  ASSIGN_OR_RETURN(OwnedTensor merged, device.Allocate(DType::kF32, {rows}));
  int64_t begin = 0;
  for (const RowBlock& block : blocks) {
    ASSIGN_OR_RETURN(const OwnedTensor bias, LoadVector(context, block.name + ".bias", block.rows));
    device.CopyIn(merged.view().Rows(begin, block.rows), bias);
    begin += block.rows;
  }
  return merged;
}

StatusOr<OwnedTensor> LoadVector(const LoadContext& context, const std::string& name, int64_t size,
                                 float offset) {
  ASSIGN_OR_RETURN(const WeightTensor tensor, context.weights.Get(name, 0, size));
  std::vector<float> values(static_cast<size_t>(size));
  const Tensor view(values.data(), DType::kF32, {size});
  ConvertTensor(view, tensor.view());
  for (float& value : values) value += offset;
  return context.backend.device().Upload(view, DType::kF32);
}

StatusOr<NormLayer> LoadRmsNorm(const LoadContext& context, const std::string& name, float offset) {
  NormLayer norm;
  ASSIGN_OR_RETURN(norm.weight,
                   LoadVector(context, name + ".weight", context.config.hidden_size, offset));
  return norm;
}

StatusOr<NormLayer> LoadLayerNorm(const LoadContext& context, const std::string& name) {
  ASSIGN_OR_RETURN(NormLayer norm, LoadRmsNorm(context, name));
  ASSIGN_OR_RETURN(norm.bias, LoadVector(context, name + ".bias", context.config.hidden_size));
  return norm;
}

float AttentionScale(double dim) { return static_cast<float>(1 / std::sqrt(dim)); }

AttentionOptions AttentionOptionsOf(const ModelConfig& config, int64_t layer_idx) {
  return {.scale = AttentionScale(static_cast<double>(config.head_dim)),
          .sliding_window = config.WindowOf(layer_idx)};
}

std::array<RowBlock, 3> QkvBlocks(const ModelConfig& config, const LayerPlace& place) {
  const std::string prefix = place.prefix + ".self_attn";
  const int64_t q_rows = config.num_heads * config.head_dim;
  const int64_t kv_rows = config.num_kv_heads * config.head_dim;
  return {
      {{prefix + ".q_proj", q_rows}, {prefix + ".k_proj", kv_rows}, {prefix + ".v_proj", kv_rows}}};
}

StatusOr<AttentionLayer> LoadAttention(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const LinearOptions options = {.has_bias = config.attention_bias};
  const RowBlock out[] = {{place.prefix + ".self_attn.o_proj", config.hidden_size}};
  AttentionLayer layer;
  ASSIGN_OR_RETURN(layer.qkv,
                   LoadLinear(context, QkvBlocks(config, place), config.hidden_size, options));
  ASSIGN_OR_RETURN(layer.out,
                   LoadLinear(context, out, config.num_heads * config.head_dim, options));
  layer.options = AttentionOptionsOf(config, place.idx);
  return layer;
}

StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const LayerPlace& place) {
  const int64_t rows = context.config.intermediate_size;
  const RowBlock gate_up[] = {{place.prefix + ".mlp.gate_proj", rows},
                              {place.prefix + ".mlp.up_proj", rows}};
  return LoadGatedMlp(context, place, gate_up);
}

StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const LayerPlace& place,
                                std::span<const RowBlock> gate_up) {
  const ModelConfig& config = context.config;
  const RowBlock down[] = {{place.prefix + ".mlp.down_proj", config.hidden_size}};
  MlpLayer layer;
  if (config.hidden_act == "gelu_pytorch_tanh") {
    layer.activation = Activation::kGeluAndMul;
  } else if (config.hidden_act != "silu") {
    return InvalidArgumentError("hidden_act " + config.hidden_act + " of " + config.architecture +
                                " must be silu or gelu_pytorch_tanh");
  }
  ASSIGN_OR_RETURN(layer.up, LoadLinear(context, gate_up, config.hidden_size,
                                        {.has_bias = config.mlp_bias, .is_gated = true}));
  ASSIGN_OR_RETURN(layer.down, LoadLinear(context, down, config.intermediate_size,
                                          {.has_bias = config.mlp_bias}));
  return layer;
}

}  // namespace tandem
