#include "engine_core/weights/recurrent_config.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine_core/weights/json_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDim = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxKernel = 8;  // kernels/recurrence.cc

constexpr std::array<std::string_view, 3> kStateTypes = {"linear_attention", "conv", "mamba"};
constexpr std::array<std::string_view, 2> kAttentionTypes = {"full_attention", "attention"};
constexpr std::array<std::string_view, 2> kOtherTypes = {"mlp", "moe"};  // of StatePlace::kAlone

template <class Names>
bool IsOneOf(const Json& type, const Names& names) {
  return std::any_of(names.begin(), names.end(), [&](auto name) { return type == name; });
}

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
  config->kv_layers.assign(config->layers.size(), false);
  const bool has_others = config->place == StatePlace::kAlone;
  for (size_t i = 0; i < types->size(); ++i) {
    const Json& type = (*types)[i];
    config->layers[i] = IsOneOf(type, kStateTypes);
    config->kv_layers[i] = IsOneOf(type, kAttentionTypes);
    if (config->layers[i] || config->kv_layers[i]) continue;
    if (has_others && IsOneOf(type, kOtherTypes)) continue;
    return BadValue("layer_types", *types,
                    std::string("a list of full_attention or attention, and linear_attention, "
                                "conv or mamba") +
                        (has_others ? ", and mlp or moe" : ""));
  }
  return OkStatus();
}

Status ReadDelta(const Json& json, RecurrentConfig* config) {
  RETURN_IF_ERROR(ReadSize(json, "linear_conv_kernel_dim", kMaxKernel, 4, &config->kernel));
  RETURN_IF_ERROR(ReadSize(json, "linear_num_key_heads", kMaxDim, 16, &config->num_key_heads));
  RETURN_IF_ERROR(ReadSize(json, "linear_num_value_heads", kMaxDim, 32, &config->num_value_heads));
  RETURN_IF_ERROR(ReadSize(json, "linear_key_head_dim", kMaxDim, 128, &config->key_dim));
  RETURN_IF_ERROR(ReadSize(json, "linear_value_head_dim", kMaxDim, 128, &config->value_dim));
  // Of GGUF files.
  RETURN_IF_ERROR(ReadBool(json, "linear_key_heads_take_turns", &config->key_heads_take_turns));
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

// The first of the keys that is there, else the first.
const char* Spelled(const Json& json, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (Find(json, key) != nullptr) return key;
  }
  return *keys.begin();
}

// Falcon-H1's, which multiply what the projection makes, and what goes into it and comes back.
Status ReadScanScales(const Json& json, RecurrentConfig* config) {
  std::vector<double> parts(config->in_scales.begin(), config->in_scales.end());
  double in = 1;
  RETURN_IF_ERROR(ReadPositives(json, "ssm_multipliers", &parts));
  RETURN_IF_ERROR(ReadPositive(json, "ssm_in_multiplier", &in));
  if (parts.size() != config->in_scales.size()) {
    return BadValue("ssm_multipliers", json["ssm_multipliers"], "5 numbers above 0");
  }
  for (size_t i = 0; i < parts.size(); ++i) config->in_scales[i] = in * parts[i];
  return ReadPositive(json, "ssm_out_multiplier", &config->out_scale);
}

// Mamba-2's, as it spells them itself, as Nemotron-H does, and as most do.
Status ReadScan(const Json& json, RecurrentConfig* config) {
  const char* heads = Spelled(json, {"mamba_n_heads", "mamba_num_heads", "num_heads"});
  const char* dim = Spelled(json, {"mamba_d_head", "mamba_head_dim", "head_dim"});
  const char* states = Spelled(json, {"mamba_d_state", "ssm_state_size", "state_size"});
  const char* groups = Spelled(json, {"mamba_n_groups", "n_groups"});
  const char* kernel = Spelled(json, {"mamba_d_conv", "conv_kernel"});
  const char* bias = Spelled(json, {"mamba_conv_bias", "use_conv_bias"});
  RETURN_IF_ERROR(ReadSize(json, kernel, kMaxKernel, 4, &config->kernel));
  RETURN_IF_ERROR(ReadSize(json, heads, kMaxDim, -1, &config->num_value_heads));
  int64_t inner = 0;  // of all heads; 0: not given
  RETURN_IF_ERROR(ReadSize(json, "mamba_d_ssm", kMaxDim, 0, &inner));
  const Json* head_dim = Find(json, dim);
  if (head_dim != nullptr && *head_dim == "auto") {
    int64_t expand = 2;
    RETURN_IF_ERROR(ReadSize(json, "mamba_expand", kMaxDim, 2, &expand));
    const int64_t all = inner > 0 ? inner : expand * config->hidden_size;
    if (all % config->num_value_heads != 0) {
      return BadValue(heads, json[heads], "a divisor of " + std::to_string(all));
    }
    config->value_dim = all / config->num_value_heads;
  } else {
    RETURN_IF_ERROR(ReadSize(json, dim, kMaxDim, -1, &config->value_dim));
  }
  if (inner > 0 && inner != config->value_size()) {
    return BadValue("mamba_d_ssm", json["mamba_d_ssm"],
                    std::string(heads) + " times " + dim + ", which is " +
                        std::to_string(config->value_size()));
  }
  RETURN_IF_ERROR(ReadSize(json, states, kMaxDim, -1, &config->key_dim));
  RETURN_IF_ERROR(ReadSize(json, groups, kMaxDim, 1, &config->num_groups));
  config->has_conv_bias = true;
  RETURN_IF_ERROR(ReadBool(json, bias, &config->has_conv_bias));
  RETURN_IF_ERROR(ReadBool(json, "mamba_rms_norm", &config->has_norm));
  RETURN_IF_ERROR(ReadBool(json, "mamba_norm_before_gate", &config->norms_before_gate));
  RETURN_IF_ERROR(ReadScanScales(json, config));
  config->num_key_heads = config->num_value_heads;
  if (config->num_value_heads % config->num_groups != 0) {
    return BadValue(groups, json[groups], std::string("a divisor of ") + heads);
  }
  return OkStatus();
}

// Jamba's: each channel is a head of one number.
Status ReadSelective(const Json& json, RecurrentConfig* config) {
  int64_t expand = 2;
  RETURN_IF_ERROR(ReadSize(json, "mamba_d_conv", kMaxKernel, 4, &config->kernel));
  RETURN_IF_ERROR(ReadSize(json, "mamba_d_state", kMaxDim, 16, &config->key_dim));
  RETURN_IF_ERROR(ReadSize(json, "mamba_expand", kMaxDim, 2, &expand));
  config->has_conv_bias = true;
  RETURN_IF_ERROR(ReadBool(json, "mamba_conv_bias", &config->has_conv_bias));
  config->num_value_heads = expand * config->hidden_size;
  config->num_key_heads = config->value_dim = 1;
  const Json* rank = Find(json, "mamba_dt_rank");
  if (rank == nullptr || *rank == "auto") {
    config->step_rank = (config->hidden_size + 15) / 16;
    return OkStatus();
  }
  return ReadSize(json, "mamba_dt_rank", kMaxDim, -1, &config->step_rank);
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
    case RecurrentKind::kSelective:
      return value_size();
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

Status ReadRecurrent(const Json& json, RecurrentKind kind, StatePlace place, int64_t num_layers,
                     int64_t hidden_size, RecurrentConfig* config) {
  config->kind = kind;
  config->place = place;
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
      if (config->place == StatePlace::kBesideAttention) {
        config->layers.assign(static_cast<size_t>(num_layers), true);
        config->kv_layers = config->layers;
      } else if (Find(json, "layer_types") == nullptr) {
        config->layers.assign(static_cast<size_t>(num_layers), true);
      }
      RETURN_IF_ERROR(ReadScan(json, config));
      break;
    case RecurrentKind::kSelective:
      RETURN_IF_ERROR(ReadSelective(json, config));
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
