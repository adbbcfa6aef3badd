#include "engine_core/weights/recurrent_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "engine_core/weights/json_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDim = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxKernel = 8;  // kernels/recurrence.cc

// From layer_types, else every `full_attention_interval`-th layer has attention.
Status ReadLayers(const Json& json, int64_t num_layers, RecurrentConfig* config) {
  config->layers.assign(static_cast<size_t>(num_layers), false);
  const Json* types = Find(json, "layer_types");
  if (types == nullptr) {
    int64_t interval = 0;
    RETURN_IF_ERROR(ReadSize(json, "full_attention_interval", kMaxLayers, 1, &interval));
    for (int64_t i = 0; i < num_layers; ++i) {
      config->layers[static_cast<size_t>(i)] = (i + 1) % interval != 0;
    }
    return OkStatus();
  }
  if (!types->is_array() || types->size() != config->layers.size()) {
    return InvalidArgumentError("layer_types must name a type for each layer");
  }
  for (size_t i = 0; i < types->size(); ++i) {
    const Json& type = (*types)[i];
    const bool has_state = type == "linear_attention" || type == "conv";
    if (!has_state && type != "full_attention") {
      return BadValue("layer_types", *types,
                      "a list of full_attention and linear_attention or conv");
    }
    config->layers[i] = has_state;
  }
  return OkStatus();
}

Status ReadDelta(const Json& json, RecurrentConfig* config) {
  RETURN_IF_ERROR(ReadSize(json, "linear_conv_kernel_dim", kMaxKernel, 4, &config->kernel));
  RETURN_IF_ERROR(ReadSize(json, "linear_num_key_heads", kMaxDim, 16, &config->num_key_heads));
  RETURN_IF_ERROR(ReadSize(json, "linear_num_value_heads", kMaxDim, 32, &config->num_value_heads));
  RETURN_IF_ERROR(ReadSize(json, "linear_key_head_dim", kMaxDim, 128, &config->key_dim));
  RETURN_IF_ERROR(ReadSize(json, "linear_value_head_dim", kMaxDim, 128, &config->value_dim));
  if (config->num_value_heads % config->num_key_heads != 0) {
    return InvalidArgumentError(
        "linear_num_value_heads must be a multiple of "
        "linear_num_key_heads");
  }
  return OkStatus();
}

// Kimi Linear's: layers count from 1.
Status ReadChannelDelta(const Json& json, int64_t num_layers, RecurrentConfig* config) {
  const Json* keys = Find(json, "linear_attn_config");
  if (keys == nullptr || !keys->is_object()) {
    return InvalidArgumentError("linear_attn_config is missing");
  }
  RETURN_IF_ERROR(ReadSize(*keys, "short_conv_kernel_size", kMaxKernel, 4, &config->kernel));
  RETURN_IF_ERROR(ReadSize(*keys, "num_heads", kMaxDim, -1, &config->num_value_heads));
  RETURN_IF_ERROR(ReadSize(*keys, "head_dim", kMaxDim, -1, &config->value_dim));
  config->num_key_heads = config->num_value_heads;
  config->key_dim = config->value_dim;
  config->layers.assign(static_cast<size_t>(num_layers), false);
  const Json* layers = Find(*keys, "kda_layers");
  if (layers == nullptr || !layers->is_array())
    return InvalidArgumentError("kda_layers is missing");
  for (const Json& layer : *layers) {
    if (!layer.is_number_unsigned() || layer.get<uint64_t>() < 1 ||
        layer.get<uint64_t>() > config->layers.size()) {
      return BadValue("kda_layers", *layers, "layers, counted from 1");
    }
    config->layers[layer.get<size_t>() - 1] = true;
  }
  return OkStatus();
}

// Mamba-2's own keys.
Status ReadScan(const Json& json, RecurrentConfig* config) {
  RETURN_IF_ERROR(ReadSize(json, "conv_kernel", kMaxKernel, 4, &config->kernel));
  RETURN_IF_ERROR(ReadSize(json, "num_heads", kMaxDim, -1, &config->num_value_heads));
  RETURN_IF_ERROR(ReadSize(json, "head_dim", kMaxDim, -1, &config->value_dim));
  RETURN_IF_ERROR(ReadSize(json, "state_size", kMaxDim, -1, &config->key_dim));
  RETURN_IF_ERROR(ReadSize(json, "n_groups", kMaxDim, 1, &config->num_groups));
  config->has_conv_bias = true;
  RETURN_IF_ERROR(ReadBool(json, "use_conv_bias", &config->has_conv_bias));
  config->num_key_heads = config->num_value_heads;
  if (config->num_value_heads % config->num_groups != 0) {
    return InvalidArgumentError("num_heads must be a multiple of n_groups");
  }
  return OkStatus();
}

}  // namespace

int64_t RecurrentConfig::num_layers() const {
  return std::count(layers.begin(), layers.end(), true);
}

int64_t RecurrentConfig::channels() const {
  switch (kind) {
    case RecurrentKind::kDelta:
    case RecurrentKind::kChannelDelta:
      return 2 * key_size() + value_size();
    case RecurrentKind::kScan:
      return value_size() + 2 * num_groups * key_dim;
    case RecurrentKind::kShortConv:
      return hidden_size;
    case RecurrentKind::kNone:
      break;
  }
  return 0;
}

int64_t RecurrentConfig::state_size() const {
  constexpr int64_t kAlign = 16;  // floats
  const int64_t heads = kind == RecurrentKind::kShortConv ? 0 : value_size() * key_dim;
  return (conv_state_size() + heads + kAlign - 1) / kAlign * kAlign;
}

Status ReadRecurrent(const Json& json, RecurrentKind kind, int64_t num_layers, int64_t hidden_size,
                     RecurrentConfig* config) {
  config->kind = kind;
  config->hidden_size = hidden_size;
  switch (kind) {
    case RecurrentKind::kNone:
      return OkStatus();
    case RecurrentKind::kDelta:
      RETURN_IF_ERROR(ReadDelta(json, config));
      break;
    case RecurrentKind::kChannelDelta:
      RETURN_IF_ERROR(ReadChannelDelta(json, num_layers, config));
      break;
    case RecurrentKind::kScan:
      config->layers.assign(static_cast<size_t>(num_layers), true);
      RETURN_IF_ERROR(ReadScan(json, config));
      break;
    case RecurrentKind::kShortConv:
      RETURN_IF_ERROR(ReadSize(json, "conv_L_cache", kMaxKernel, 3, &config->kernel));
      RETURN_IF_ERROR(ReadBool(json, "conv_bias", &config->has_conv_bias));
      break;
  }
  if (config->value_size() > kMaxDim || config->key_size() > kMaxDim) {
    return InvalidArgumentError("the heads of the recurrent layers are too large together");
  }
  const bool has_layers = !config->layers.empty();
  return has_layers ? OkStatus() : ReadLayers(json, num_layers, config);
}

}  // namespace tandem
