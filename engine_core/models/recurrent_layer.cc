#include "engine_core/models/recurrent_layer.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine_core/models/load_packed.h"

namespace tandem {
namespace {

using Blocks = std::vector<StoredMatrix>;

// Rows [first, first + count) of each of `num_groups` equal groups of a module's rows.
void AddOfGroups(const std::string& name, int64_t rows, int64_t columns, int64_t num_groups,
                 Slice part, Blocks* blocks) {
  for (int64_t g = 0; g < num_groups; ++g) {
    blocks->push_back({.name = name,
                       .rows = rows,
                       .columns = columns,
                       .row_slice = part.Shifted(rows / num_groups * g)});
  }
}

// Qwen3-Next has q, k, v and z side by side for each key head; they are sorted here.
Blocks DeltaBlocks(const LoadContext& context, const std::string& prefix) {
  const RecurrentConfig& shape = context.config.recurrent;
  const int64_t hidden = context.config.hidden_size, keys = shape.key_dim;
  const int64_t values = shape.value_size() / shape.num_key_heads;  // of a key head
  const std::string merged = prefix + ".in_proj_qkvz";
  Blocks blocks;
  if (!context.weights.Has(merged + ".weight")) {
    blocks.push_back(
        {.name = prefix + ".in_proj_qkv", .rows = shape.channels(), .columns = hidden});
    blocks.push_back(
        {.name = prefix + ".in_proj_z", .rows = shape.value_size(), .columns = hidden});
    return blocks;
  }
  const int64_t rows = shape.channels() + shape.value_size();
  int64_t first = 0;
  for (const int64_t count : {keys, keys, values, values}) {
    AddOfGroups(merged, rows, hidden, shape.num_key_heads, {first, count}, &blocks);
    first += count;
  }
  return blocks;
}

Blocks DeltaGateBlocks(const LoadContext& context, const std::string& prefix) {
  const RecurrentConfig& shape = context.config.recurrent;
  const int64_t hidden = context.config.hidden_size, heads = shape.num_value_heads;
  const std::string merged = prefix + ".in_proj_ba";
  Blocks blocks;
  if (!context.weights.Has(merged + ".weight")) {
    const int64_t of_turn = heads / shape.num_turns();
    for (int64_t first = 0; first < heads; first += of_turn) {
      for (const char* name : {".in_proj_b", ".in_proj_a"}) {
        blocks.push_back({.name = prefix + name,
                          .rows = heads,
                          .columns = hidden,
                          .row_slice = Slice{first, of_turn}});
      }
    }
    return blocks;
  }
  const int64_t own = heads / shape.num_key_heads;
  AddOfGroups(merged, 2 * heads, hidden, shape.num_key_heads, {0, own}, &blocks);
  AddOfGroups(merged, 2 * heads, hidden, shape.num_key_heads, {own, own}, &blocks);
  return blocks;
}

// What channel c of the convolution is multiplied by.
float ScaleOfChannel(const RecurrentConfig& shape, int64_t c) {
  const int64_t x = shape.value_size(), b = shape.num_groups * shape.key_dim;
  return static_cast<float>(shape.in_scales[c < x ? 1 : c < x + b ? 2 : 3]);
}

// Convolutions stored as [channels, 1, kernel] side by side, as [kernel, all channels]. Scales of
// what goes in are put into them.
StatusOr<OwnedTensor> LoadTaps(const LoadContext& context, const std::vector<std::string>& names) {
  const RecurrentConfig& shape = context.config.recurrent;
  const int64_t all = shape.channels(), kernel = shape.kernel;
  const int64_t channels = all / static_cast<int64_t>(names.size());  // of each
  return LoadNumbers(context, names[0], kernel, all, [&](float* taps) -> Status {
    std::vector<float> own(static_cast<size_t>(kernel));
    for (int64_t c = 0; c < all; ++c) {
      const std::string& name = names[static_cast<size_t>(c / channels)];
      ASSIGN_OR_RETURN(const WeightTensor tensor,
                       context.weights.GetFromStack(name, c % channels, channels, 1, kernel));
      ConvertTensor(Tensor(own.data(), DType::kF32, {1, kernel}), tensor.view());
      const float scale = ScaleOfChannel(shape, c);
      for (int64_t j = 0; j < kernel; ++j) {
        taps[j * all + c] = scale * own[static_cast<size_t>(j)];
      }
    }
    return OkStatus();
  });
}

Status LoadHeads(const LoadContext& context, const std::string& prefix, RecurrentLayer* layer) {
  const RecurrentConfig& shape = context.config.recurrent;
  const int64_t heads = shape.num_value_heads;
  ASSIGN_OR_RETURN(layer->a_log, LoadVector(context, prefix + ".A_log", heads));
  ASSIGN_OR_RETURN(layer->dt_bias, LoadVector(context, prefix + ".dt_bias", heads));
  const bool is_scan = shape.kind == RecurrentKind::kScan;
  if (shape.has_norm) {
    ASSIGN_OR_RETURN(layer->norm, LoadVector(context, prefix + ".norm.weight",
                                             is_scan ? shape.value_size() : shape.value_dim));
  }
  if (is_scan) {
    ASSIGN_OR_RETURN(layer->d, LoadVector(context, prefix + ".D", heads));
  }
  return OkStatus();
}

// A vector of float32 that a file has in another shape of as many numbers, such as [1, 1, n, 1].
StatusOr<OwnedTensor> LoadFlat(const LoadContext& context, const std::string& name, int64_t size) {
  return LoadNumbers(context, name, 0, size, [&](float* out) -> Status {
    const StatusOr<StoredTensor> stored = context.weights.GetStored(name);
    if (stored.ok() && stored->dtype() == "F32" && stored->num_elements() == size) {
      std::memcpy(out, stored->bytes().data(), static_cast<size_t>(size) * sizeof(float));
      return OkStatus();
    }
    ASSIGN_OR_RETURN(const WeightTensor tensor, context.weights.Get(name, 0, size));
    ConvertTensor(Tensor(out, DType::kF32, {size}), tensor.view());
    return OkStatus();
  });
}

// Kimi Linear's layers, whose names are those of attention.
StatusOr<RecurrentLayer> LoadChannelDelta(const LoadContext& context, const std::string& prefix) {
  const RecurrentConfig& shape = context.config.recurrent;
  const int64_t hidden = context.config.hidden_size, values = shape.value_size();
  const auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
    return StoredMatrix{.name = prefix + name, .rows = rows, .columns = columns};
  };
  const StoredMatrix in[] = {matrix(".q_proj", values, hidden), matrix(".k_proj", values, hidden),
                             matrix(".v_proj", values, hidden),
                             matrix(".f_a_proj", shape.value_dim, hidden),
                             matrix(".g_a_proj", shape.value_dim, hidden)};
  const StoredMatrix b[] = {matrix(".b_proj", shape.num_value_heads, hidden)};
  const StoredMatrix decay[] = {matrix(".f_b_proj", values, shape.value_dim)};
  const StoredMatrix gate[] = {matrix(".g_b_proj", values, shape.value_dim)};
  const StoredMatrix out[] = {matrix(".o_proj", hidden, values)};
  const LinearOptions unadapted = {.format = WeightFormat::kCompute,
                                   .adapted_as = AdaptedAs::kNothing};
  RecurrentLayer layer;
  ASSIGN_OR_RETURN(layer.in, LoadLinear(context, in));
  ASSIGN_OR_RETURN(layer.gates, LoadLinear(context, b, {.format = WeightFormat::kCompute}));
  ASSIGN_OR_RETURN(layer.decay, LoadLinear(context, decay, unadapted));
  ASSIGN_OR_RETURN(layer.gate, LoadLinear(context, gate, unadapted));
  ASSIGN_OR_RETURN(layer.conv,
                   LoadTaps(context, {prefix + ".q_conv1d.weight", prefix + ".k_conv1d.weight",
                                      prefix + ".v_conv1d.weight"}));
  ASSIGN_OR_RETURN(layer.a_log, LoadFlat(context, prefix + ".A_log", shape.num_value_heads));
  ASSIGN_OR_RETURN(layer.dt_bias, LoadFlat(context, prefix + ".dt_bias", values));
  ASSIGN_OR_RETURN(layer.norm, LoadVector(context, prefix + ".o_norm.weight", shape.value_dim));
  ASSIGN_OR_RETURN(layer.out, LoadLinear(context, out));
  return layer;
}

// A_log [V, state_dim] as how fast each number decays, turned.
StatusOr<OwnedTensor> LoadDecays(const LoadContext& context, const std::string& name) {
  const int64_t channels = context.config.recurrent.value_size();
  const int64_t states = context.config.recurrent.key_dim;
  return LoadNumbers(context, name, states, channels, [&](float* decays) -> Status {
    ASSIGN_OR_RETURN(const WeightTensor stored, context.weights.Get(name, channels, states));
    std::vector<float> row(static_cast<size_t>(states));
    for (int64_t c = 0; c < channels; ++c) {
      ConvertTensor(Tensor(row.data(), DType::kF32, {1, states}), stored.view().Rows(c, 1));
      for (int64_t n = 0; n < states; ++n) {
        decays[n * channels + c] = -std::exp(row[static_cast<size_t>(n)]);
      }
    }
    return OkStatus();
  });
}

// Jamba's layers.
StatusOr<RecurrentLayer> LoadSelective(const LoadContext& context, const std::string& prefix) {
  const RecurrentConfig& shape = context.config.recurrent;
  const int64_t hidden = context.config.hidden_size, inner = shape.value_size();
  const int64_t rank = shape.step_rank, states = shape.key_dim;
  const auto load = [&](const char* name, int64_t rows, int64_t columns,
                        const LinearOptions& options = {}) {
    const StoredMatrix block[] = {{.name = prefix + name, .rows = rows, .columns = columns}};
    return LoadLinear(context, block, options);
  };
  const LinearOptions unadapted = {.format = WeightFormat::kCompute,
                                   .adapted_as = AdaptedAs::kNothing};
  RecurrentLayer layer;
  ASSIGN_OR_RETURN(layer.in, load(".in_proj", 2 * inner, hidden));
  ASSIGN_OR_RETURN(layer.select, load(".x_proj", rank + 2 * states, inner, unadapted));
  ASSIGN_OR_RETURN(layer.step, load(".dt_proj", inner, rank, unadapted));
  ASSIGN_OR_RETURN(layer.dt_bias, LoadVector(context, prefix + ".dt_proj.bias", inner));
  ASSIGN_OR_RETURN(layer.dt_norm, LoadVector(context, prefix + ".dt_layernorm.weight", rank));
  ASSIGN_OR_RETURN(layer.b_norm, LoadVector(context, prefix + ".b_layernorm.weight", states));
  ASSIGN_OR_RETURN(layer.c_norm, LoadVector(context, prefix + ".c_layernorm.weight", states));
  ASSIGN_OR_RETURN(layer.conv, LoadTaps(context, {prefix + ".conv1d.weight"}));
  if (shape.has_conv_bias) {
    ASSIGN_OR_RETURN(layer.conv_bias, LoadVector(context, prefix + ".conv1d.bias", inner));
  }
  ASSIGN_OR_RETURN(layer.a, LoadDecays(context, prefix + ".A_log"));
  ASSIGN_OR_RETURN(layer.d, LoadVector(context, prefix + ".D", inner));
  ASSIGN_OR_RETURN(layer.out, load(".out_proj", hidden, inner));
  return layer;
}

}  // namespace

StatusOr<RecurrentLayer> LoadRecurrentLayer(const LoadContext& context, const std::string& prefix) {
  const RecurrentConfig& shape = context.config.recurrent;
  const int64_t hidden = context.config.hidden_size;
  const bool is_conv = shape.kind == RecurrentKind::kShortConv;
  if (shape.kind == RecurrentKind::kChannelDelta) return LoadChannelDelta(context, prefix);
  if (shape.kind == RecurrentKind::kSelective) return LoadSelective(context, prefix);
  RecurrentLayer layer;
  if (shape.kind == RecurrentKind::kDelta) {
    ASSIGN_OR_RETURN(layer.in, LoadLinear(context, DeltaBlocks(context, prefix)));
    ASSIGN_OR_RETURN(layer.gates, LoadLinear(context, DeltaGateBlocks(context, prefix),
                                             {.format = WeightFormat::kCompute}));
  } else {
    const int64_t rows =
        is_conv ? 3 * hidden : shape.value_size() + shape.channels() + shape.num_value_heads;
    const StoredMatrix in[] = {{.name = prefix + ".in_proj", .rows = rows, .columns = hidden}};
    ASSIGN_OR_RETURN(layer.in, LoadLinear(context, in));
  }
  const std::string conv = prefix + (is_conv ? ".conv" : ".conv1d");
  ASSIGN_OR_RETURN(layer.conv, LoadTaps(context, {conv + ".weight"}));
  if (shape.has_conv_bias) {
    ASSIGN_OR_RETURN(layer.conv_bias, LoadVector(context, conv + ".bias", shape.channels()));
  }
  if (!is_conv) RETURN_IF_ERROR(LoadHeads(context, prefix, &layer));
  const StoredMatrix out[] = {{.name = prefix + ".out_proj",
                               .rows = hidden,
                               .columns = is_conv ? hidden : shape.value_size()}};
  ASSIGN_OR_RETURN(layer.out, LoadLinear(context, out));
  return layer;
}

}  // namespace tandem
