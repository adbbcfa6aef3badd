#include "engine_core/weights/model_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine_core/weights/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDim = int64_t{1} << 24;  // keeps every product of two sizes in an int64
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxExperts = 1 << 16;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

// The value of `key`, or null when it is absent or null: HF writes both for "not set".
const Json* Find(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it == json.end() || it->is_null() ? nullptr : &*it;
}

Status BadValue(const char* key, const Json& value, const std::string& allowed) {
  return InvalidArgumentError(std::string(key) + " is " + value.dump() + ", must be " + allowed);
}

// Reads an integer in [1, max]; `fallback` < 0 makes the key required.
Status ReadSize(const Json& json, const char* key, int64_t max, int64_t fallback, int64_t* out) {
  const Json* value = Find(json, key);
  if (value == nullptr) {
    if (fallback < 0) return InvalidArgumentError(std::string(key) + " is missing");
    *out = fallback;
    return OkStatus();
  }
  const bool fits =
      value->is_number_unsigned() && value->get<uint64_t>() <= static_cast<uint64_t>(max);
  if (!fits || value->get<int64_t>() < 1) {
    return BadValue(key, *value, "an integer in [1, " + std::to_string(max) + "]");
  }
  *out = value->get<int64_t>();
  return OkStatus();
}

// Reads a finite number > 0 when present.
Status ReadPositive(const Json& json, const char* key, double* out) {
  const Json* value = Find(json, key);
  if (value == nullptr) return OkStatus();
  if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0) {
    return BadValue(key, *value, "a number above 0");
  }
  *out = value->get<double>();
  return OkStatus();
}

Status ReadBool(const Json& json, const char* key, bool* out) {
  const Json* value = Find(json, key);
  if (value == nullptr) return OkStatus();
  if (!value->is_boolean()) return BadValue(key, *value, "true or false");
  *out = value->get<bool>();
  return OkStatus();
}

Status ReadString(const Json& json, const char* key, std::string* out) {
  const Json* value = Find(json, key);
  if (value == nullptr) return OkStatus();
  if (!value->is_string()) return BadValue(key, *value, "a string");
  *out = value->get<std::string>();
  return OkStatus();
}

// --- rope ---------------------------------------------------------------------------------------

struct RopeTypeRow {
  std::string_view name;
  RopeType type;
};
constexpr RopeTypeRow kRopeTypes[] = {
    {"default", RopeType::kDefault},
    {"linear", RopeType::kLinear},
    {"llama3", RopeType::kLlama3},
    {"yarn", RopeType::kYarn},
};

StatusOr<RopeType> ParseRopeType(std::string_view name) {
  std::string known;
  for (const RopeTypeRow& row : kRopeTypes) {
    if (row.name == name) return row.type;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return InvalidArgumentError("rope type " + std::string(name) + " is not known, must be one of " +
                              known);
}

// yarn's growth of attention scores with the context: 0.1 m ln(factor) + 1.
double YarnScale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

Status ReadYarn(const Json& json, RopeConfig* rope) {
  RETURN_IF_ERROR(ReadPositive(json, "beta_fast", &rope->beta_fast));
  RETURN_IF_ERROR(ReadPositive(json, "beta_slow", &rope->beta_slow));
  RETURN_IF_ERROR(ReadBool(json, "truncate", &rope->truncate));
  double mscale = 0, mscale_all_dim = 0;
  RETURN_IF_ERROR(ReadPositive(json, "mscale", &mscale));
  RETURN_IF_ERROR(ReadPositive(json, "mscale_all_dim", &mscale_all_dim));
  rope->attention_factor =
      mscale > 0 && mscale_all_dim > 0
          ? YarnScale(rope->factor, mscale) / YarnScale(rope->factor, mscale_all_dim)
          : YarnScale(rope->factor, 1);
  return ReadPositive(json, "attention_factor", &rope->attention_factor);
}

// `json` is rope_parameters (transformers 5) or rope_scaling (transformers 4).
Status ReadRopeScaling(const Json& json, int64_t max_position_embeddings, RopeConfig* rope) {
  if (!json.is_object()) return InvalidArgumentError("is not an object");
  std::string type = "default";
  RETURN_IF_ERROR(ReadString(json, "type", &type));  // the oldest spelling
  RETURN_IF_ERROR(ReadString(json, "rope_type", &type));
  ASSIGN_OR_RETURN(rope->type, ParseRopeType(type));
  RETURN_IF_ERROR(ReadPositive(json, "rope_theta", &rope->theta));
  if (rope->type == RopeType::kDefault) return OkStatus();

  if (Find(json, "factor") == nullptr) return InvalidArgumentError("factor is missing");
  RETURN_IF_ERROR(ReadPositive(json, "factor", &rope->factor));
  RETURN_IF_ERROR(ReadSize(json, "original_max_position_embeddings", kMaxPositions,
                           max_position_embeddings, &rope->original_max_position_embeddings));
  if (rope->type == RopeType::kYarn) return ReadYarn(json, rope);
  if (rope->type == RopeType::kLlama3) {
    RETURN_IF_ERROR(ReadPositive(json, "low_freq_factor", &rope->low_freq_factor));
    RETURN_IF_ERROR(ReadPositive(json, "high_freq_factor", &rope->high_freq_factor));
    if (rope->high_freq_factor <= rope->low_freq_factor) {
      return InvalidArgumentError("high_freq_factor must be above low_freq_factor");
    }
  }
  return OkStatus();
}

Status ReadRope(const Json& json, ModelConfig* config) {
  RETURN_IF_ERROR(ReadPositive(json, "rope_theta", &config->rope.theta));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (const Json* scaling = Find(json, key)) {
      const Status status =
          ReadRopeScaling(*scaling, config->max_position_embeddings, &config->rope);
      if (!status.ok()) return status.WithContext(key);
    }
  }
  double partial = 1;
  RETURN_IF_ERROR(ReadPositive(json, "partial_rotary_factor", &partial));
  if (const Json* parameters = Find(json, "rope_parameters")) {
    RETURN_IF_ERROR(ReadPositive(*parameters, "partial_rotary_factor", &partial));
  }
  config->rotary_dim = static_cast<int64_t>(static_cast<double>(config->head_dim) * partial);
  if (partial > 1 || config->rotary_dim % 2 != 0) {
    return InvalidArgumentError("partial_rotary_factor " + std::to_string(partial) +
                                " must be at most 1 and turn an even number of dimensions");
  }
  return OkStatus();
}

// --- the rest -----------------------------------------------------------------------------------

Status ReadDtype(const Json& json, DType* dtype) {
  std::string name = "bfloat16";
  RETURN_IF_ERROR(ReadString(json, "torch_dtype", &name));
  RETURN_IF_ERROR(ReadString(json, "dtype", &name));
  for (const DType known : {DType::kF32, DType::kF16, DType::kBf16}) {
    if (DTypeName(known) == name) {
      *dtype = known;
      return OkStatus();
    }
  }
  return InvalidArgumentError("dtype " + name + " must be float32, float16 or bfloat16");
}

// One id or a list of ids; generation_config's wins over config's when it has any.
Status ReadEosIds(const Json& json, int64_t vocab_size, std::vector<TokenId>* out) {
  const Json* value = Find(json, "eos_token_id");
  if (value == nullptr) return OkStatus();
  const Json list = value->is_array() ? *value : Json::array({*value});
  std::vector<TokenId> ids;
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size)) {
      return BadValue("eos_token_id", *value, "ids below vocab_size");
    }
    ids.push_back(id.get<TokenId>());
  }
  if (!ids.empty()) *out = ids;
  return OkStatus();
}

Status ReadArchitecture(const Json& json, ModelConfig* config) {
  const Json* list = Find(json, "architectures");
  if (list == nullptr || !list->is_array() || list->empty() || !(*list)[0].is_string()) {
    return InvalidArgumentError("architectures must be a list that starts with a name");
  }
  config->architecture = (*list)[0].get<std::string>();
  return ReadString(json, "model_type", &config->model_type);
}

// GPT-2's config has names of its own for what everybody else has.
const char* Spelled(const Json& json, const char* key, const char* gpt2_key) {
  return Find(json, key) == nullptr && Find(json, gpt2_key) != nullptr ? gpt2_key : key;
}

Status ReadShape(const Json& json, ModelConfig* config) {
  RETURN_IF_ERROR(ReadSize(json, "vocab_size", kMaxDim, -1, &config->vocab_size));
  RETURN_IF_ERROR(
      ReadSize(json, Spelled(json, "hidden_size", "n_embd"), kMaxDim, -1, &config->hidden_size));
  RETURN_IF_ERROR(ReadSize(json, Spelled(json, "intermediate_size", "n_inner"), kMaxDim,
                           Find(json, "n_embd") == nullptr ? -1 : 4 * config->hidden_size,
                           &config->intermediate_size));
  RETURN_IF_ERROR(ReadSize(json, Spelled(json, "num_hidden_layers", "n_layer"), kMaxLayers, -1,
                           &config->num_layers));
  RETURN_IF_ERROR(ReadSize(json, Spelled(json, "num_attention_heads", "n_head"), kMaxDim, -1,
                           &config->num_heads));
  RETURN_IF_ERROR(
      ReadSize(json, "num_key_value_heads", kMaxDim, config->num_heads, &config->num_kv_heads));
  if (config->num_heads % config->num_kv_heads != 0) {
    return InvalidArgumentError("num_attention_heads " + std::to_string(config->num_heads) +
                                " must be a multiple of num_key_value_heads " +
                                std::to_string(config->num_kv_heads));
  }
  RETURN_IF_ERROR(ReadSize(json, "head_dim", kMaxDim,
                           std::max<int64_t>(1, config->hidden_size / config->num_heads),
                           &config->head_dim));
  if (config->head_dim % 2 != 0) {
    return InvalidArgumentError("head_dim " + std::to_string(config->head_dim) + " must be even");
  }
  if (config->num_heads > kMaxDim / config->head_dim) {
    return InvalidArgumentError("num_attention_heads times head_dim is too large");
  }
  return ReadSize(json, Spelled(json, "max_position_embeddings", "n_positions"), kMaxPositions,
                  2048, &config->max_position_embeddings);
}

Status ReadGemma(const Json& json, ModelConfig* config) {
  RETURN_IF_ERROR(ReadPositive(json, "query_pre_attn_scalar", &config->query_pre_attn_scalar));
  RETURN_IF_ERROR(ReadPositive(json, "attn_logit_softcapping", &config->attn_logit_softcapping));
  RETURN_IF_ERROR(ReadPositive(json, "final_logit_softcapping", &config->final_logit_softcapping));
  RETURN_IF_ERROR(ReadPositive(json, "rope_local_base_freq", &config->rope_local_base_freq));
  RETURN_IF_ERROR(ReadSize(json, "sliding_window_pattern", kMaxLayers,
                           config->sliding_window_pattern, &config->sliding_window_pattern));
  const Json* types = Find(json, "layer_types");
  if (types == nullptr) return OkStatus();
  if (!types->is_array() || types->size() != static_cast<size_t>(config->num_layers)) {
    return InvalidArgumentError("layer_types must name a type for each layer");
  }
  for (const Json& type : *types) config->sliding_layers.push_back(type == "sliding_attention");
  return OkStatus();
}

// A mixture's experts; sizes that are not given stay 0.
Status ReadExperts(const Json& json, ModelConfig* config) {
  RETURN_IF_ERROR(ReadSize(json, "num_experts", kMaxExperts, 0, &config->num_experts));
  RETURN_IF_ERROR(
      ReadSize(json, "num_local_experts", kMaxExperts, config->num_experts, &config->num_experts));
  RETURN_IF_ERROR(
      ReadSize(json, "num_experts_per_tok", kMaxExperts, 0, &config->num_experts_per_tok));
  RETURN_IF_ERROR(
      ReadSize(json, "moe_intermediate_size", kMaxDim, 0, &config->moe_intermediate_size));
  RETURN_IF_ERROR(
      ReadSize(json, "decoder_sparse_step", kMaxLayers, 1, &config->decoder_sparse_step));
  RETURN_IF_ERROR(ReadBool(json, "norm_topk_prob", &config->norm_topk_prob));
  const Json* layers = Find(json, "mlp_only_layers");
  if (layers == nullptr) return OkStatus();
  for (const Json& layer : *layers) {
    if (!layers->is_array() || !layer.is_number_unsigned()) {
      return BadValue("mlp_only_layers", *layers, "a list of layer numbers");
    }
    config->mlp_only_layers.push_back(layer.get<int64_t>());
  }
  return OkStatus();
}

// Variants of GPT-2's attention that would be computed wrongly if they went unseen.
Status RefuseGpt2Variants(const Json& json) {
  bool scales = true, scales_by_layer = false;
  RETURN_IF_ERROR(ReadBool(json, "scale_attn_weights", &scales));
  RETURN_IF_ERROR(ReadBool(json, "scale_attn_by_inverse_layer_idx", &scales_by_layer));
  if (!scales) return UnimplementedError("scale_attn_weights is false, must be true");
  if (scales_by_layer) {
    return UnimplementedError("scale_attn_by_inverse_layer_idx is true, must be false");
  }
  return OkStatus();
}

StatusOr<ModelConfig> ParseConfigJson(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  ModelConfig config;
  RETURN_IF_ERROR(ReadArchitecture(json, &config));
  RETURN_IF_ERROR(ReadShape(json, &config));
  RETURN_IF_ERROR(ReadPositive(json, Spelled(json, "rms_norm_eps", "layer_norm_epsilon"),
                               &config.rms_norm_eps));
  RETURN_IF_ERROR(
      ReadString(json, Spelled(json, "hidden_act", "activation_function"), &config.hidden_act));
  RETURN_IF_ERROR(ReadString(json, "hidden_activation", &config.hidden_act));
  RETURN_IF_ERROR(ReadGemma(json, &config));
  RETURN_IF_ERROR(ReadExperts(json, &config));
  RETURN_IF_ERROR(RefuseGpt2Variants(json));
  if (Find(json, "quantization_config") != nullptr) {
    return UnimplementedError(
        "quantization_config is set: only weights in bf16, fp16 or fp32 load");
  }
  RETURN_IF_ERROR(ReadBool(json, "tie_word_embeddings", &config.tie_word_embeddings));
  RETURN_IF_ERROR(ReadBool(json, "attention_bias", &config.attention_bias));
  RETURN_IF_ERROR(ReadBool(json, "mlp_bias", &config.mlp_bias));
  RETURN_IF_ERROR(ReadRope(json, &config));
  RETURN_IF_ERROR(ReadSize(json, "sliding_window", kMaxPositions - 1, 0, &config.sliding_window));
  bool use_sliding_window = false;
  RETURN_IF_ERROR(ReadBool(json, "use_sliding_window", &use_sliding_window));
  if (use_sliding_window) return UnimplementedError("use_sliding_window must be false");
  RETURN_IF_ERROR(ReadDtype(json, &config.dtype));
  RETURN_IF_ERROR(ReadEosIds(json, config.vocab_size, &config.eos_token_ids));
  return config;
}

}  // namespace

StatusOr<ModelConfig> ParseModelConfig(std::string_view config_text,
                                       std::string_view generation_config) {
  StatusOr<ModelConfig> config = ParseConfigJson(config_text);
  if (!config.ok()) return config.status().WithContext("config.json");
  if (generation_config.empty()) return config;
  StatusOr<Json> json = ParseJsonObject(generation_config);
  if (!json.ok()) return json.status().WithContext("generation_config.json");
  const Status status = ReadEosIds(*json, config->vocab_size, &config->eos_token_ids);
  if (!status.ok()) return status.WithContext("generation_config.json");
  return config;
}

StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir) {
  ASSIGN_OR_RETURN(const std::string config, ReadTextFile(model_dir + "/config.json"));
  StatusOr<std::string> generation = ReadTextFile(model_dir + "/generation_config.json");
  if (!generation.ok() && generation.status().code() != StatusCode::kNotFound) {
    return generation.status();
  }
  StatusOr<ModelConfig> parsed =
      ParseModelConfig(config, generation.ok() ? std::string_view(*generation) : "");
  if (!parsed.ok()) return parsed.status().WithContext(model_dir);
  return parsed;
}

}  // namespace tandem
