#include "engine_core/weights/model_config.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/log.h"
#include "common/read_file.h"
#include "engine_core/weights/family_keys.h"
#include "engine_core/weights/gguf_config.h"
#include "engine_core/weights/hf_overrides.h"
#include "engine_core/weights/json_fields.h"
#include "engine_core/weights/json_file.h"
#include "engine_core/weights/key_index_config.h"
#include "engine_core/weights/packed_file.h"
#include "engine_core/weights/uneven_config.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDim = int64_t{1} << 24;  // keeps every product of two sizes in an int64
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxExperts = 1 << 16;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

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
  if (name == "float64") {  // its numbers are read as float32
    *dtype = DType::kF32;
    return OkStatus();
  }
  return InvalidArgumentError("dtype " + name + " must be float64, float32, float16 or bfloat16");
}

// One id or a list of ids; generation_config's wins over config's when it has any. What a tokenizer
// has and the model's matrices have no row for can end no output.
Status ReadEosIds(const Json& json, int64_t vocab_size, std::vector<TokenId>* out) {
  const Json* value = Find(json, "eos_token_id");
  if (value == nullptr) return OkStatus();
  const Json list = value->is_array() ? *value : Json::array({*value});
  std::vector<TokenId> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer()) return BadValue("eos_token_id", *value, "a token id or a list");
    if (id < 0 || id >= vocab_size) {
      LOG_WARNING << "eos_token_id " << id.dump() << " is outside of the vocabulary of "
                  << vocab_size << " tokens and ends no output";
      continue;
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

// The key, or GPT-2's name for it when only that is present.
const char* Spelled(const Json& json, const char* key, const char* gpt2_key) {
  return Find(json, key) == nullptr && Find(json, gpt2_key) != nullptr ? gpt2_key : key;
}

Status ReadShape(const Json& json, const ConfigRules& rules, ModelConfig* config) {
  RETURN_IF_ERROR(ReadSize(json, "vocab_size", kMaxDim, -1, &config->vocab_size));
  RETURN_IF_ERROR(
      ReadSize(json, Spelled(json, "hidden_size", "n_embd"), kMaxDim, -1, &config->hidden_size));
  RETURN_IF_ERROR(ReadSize(json, Spelled(json, "intermediate_size", "n_inner"), kMaxDim,
                           rules.has_gated_mlp ? -1 : 4 * config->hidden_size,
                           &config->intermediate_size));
  RETURN_IF_ERROR(ReadSize(json, Spelled(json, "num_hidden_layers", "n_layer"), kMaxLayers, -1,
                           &config->num_layers));
  RETURN_IF_ERROR(ReadSize(json, Spelled(json, "num_attention_heads", "n_head"), kMaxDim, -1,
                           &config->num_heads));
  RETURN_IF_ERROR(
      ReadSize(json, "num_key_value_heads", kMaxDim, config->num_heads, &config->num_kv_heads));
  bool is_multi_query = false;
  RETURN_IF_ERROR(ReadBool(json, "multi_query", &is_multi_query));
  RETURN_IF_ERROR(ReadBool(json, "new_decoder_architecture", &config->new_decoder_architecture));
  if (is_multi_query && !config->new_decoder_architecture) config->num_kv_heads = 1;
  if (config->num_heads % config->num_kv_heads != 0) {
    return InvalidArgumentError("num_attention_heads " + std::to_string(config->num_heads) +
                                " must be a multiple of num_key_value_heads " +
                                std::to_string(config->num_kv_heads));
  }
  RETURN_IF_ERROR(ReadSize(json, "head_dim", kMaxDim,
                           std::max<int64_t>(1, config->hidden_size / config->num_heads),
                           &config->head_dim));
  if (config->head_dim % 2 != 0 && !rules.has_latent) {
    return InvalidArgumentError("head_dim " + std::to_string(config->head_dim) + " must be even");
  }
  if (config->num_heads > kMaxDim / config->head_dim) {
    return InvalidArgumentError("num_attention_heads times head_dim is too large");
  }
  return ReadSize(json, Spelled(json, "max_position_embeddings", "n_positions"), kMaxPositions,
                  2048, &config->max_position_embeddings);
}

// One KV head for all: the latent.
Status ReadLatent(const Json& json, ModelConfig* config) {
  LatentConfig& latent = config->latent;
  RETURN_IF_ERROR(ReadSize(json, "q_lora_rank", kMaxDim, 0, &latent.q_rank));
  RETURN_IF_ERROR(ReadSize(json, "kv_lora_rank", kMaxDim, -1, &latent.kv_rank));
  RETURN_IF_ERROR(ReadSize(json, "qk_nope_head_dim", kMaxDim, -1, &latent.nope_dim));
  RETURN_IF_ERROR(ReadSize(json, "qk_rope_head_dim", kMaxDim, -1, &latent.pe_dim));
  RETURN_IF_ERROR(ReadSize(json, "v_head_dim", kMaxDim, -1, &latent.value_dim));
  config->num_kv_heads = 1;
  config->head_dim = latent.kv_rank + latent.pe_dim;
  for (const auto& [key, size] :
       {std::pair{"kv_lora_rank", latent.kv_rank}, std::pair{"qk_nope_head_dim", latent.nope_dim},
        std::pair{"qk_rope_head_dim", latent.pe_dim}}) {
    if (size % 2 != 0) {
      return InvalidArgumentError(std::string(key) + " " + std::to_string(size) + " must be even");
    }
  }
  const int64_t widest =
      std::max({config->head_dim, latent.nope_dim + latent.pe_dim, latent.value_dim});
  if (config->num_heads > kMaxDim / widest) {
    return InvalidArgumentError("num_attention_heads times the dimensions of a head is too large");
  }
  return OkStatus();
}

Status ReadGemma(const Json& json, ModelConfig* config) {
  RETURN_IF_ERROR(ReadPositive(json, "query_pre_attn_scalar", &config->query_pre_attn_scalar));
  // Gemma 4's "vision": the tokens of an image alone see those after them.
  const Json* sees_all = Find(json, "use_bidirectional_attention");
  if (sees_all == nullptr || *sees_all != "vision") {
    RETURN_IF_ERROR(ReadBool(json, "use_bidirectional_attention", &config->is_bidirectional));
  }
  RETURN_IF_ERROR(ReadPositive(json, "attn_logit_softcapping", &config->attn_logit_softcapping));
  return ReadPositive(json, "final_logit_softcapping", &config->final_logit_softcapping);
}

// "LLLG": L is a layer with a window. The pattern repeats.
Status ReadLetters(const Json& letters, ModelConfig* config) {
  const auto text = letters.get<std::string>();
  if (text.empty() || text.find_first_not_of("LG") != std::string::npos) {
    return BadValue("sliding_window_pattern", letters, "a number of layers, or letters L and G");
  }
  for (int64_t i = 0; i < config->num_layers; ++i) {
    config->sliding_layers.push_back(text[static_cast<size_t>(i) % text.size()] == 'L');
  }
  return OkStatus();
}

// From layer_types, else from max_window_layers and sliding_window_pattern.
Status ReadSlidingLayers(const Json& json, ModelConfig* config) {
  const auto num_layers = static_cast<size_t>(config->num_layers);
  const Json* types = Find(json, "layer_types");
  if (types != nullptr) {
    if (!types->is_array() || types->size() != num_layers) {
      return InvalidArgumentError("layer_types must name a type for each layer");
    }
    for (const Json& type : *types) {
      if (type != "sliding_attention" && type != "full_attention") {
        return BadValue("layer_types", *types, "a list of sliding_attention and full_attention");
      }
      config->sliding_layers.push_back(type == "sliding_attention");
    }
    return OkStatus();
  }
  int64_t first = 0, pattern = 0;
  RETURN_IF_ERROR(ReadCount(json, "max_window_layers", kMaxLayers, &first));  // Qwen's
  const Json* letters = Find(json, "sliding_window_pattern");
  if (letters != nullptr && letters->is_string()) return ReadLetters(*letters, config);
  RETURN_IF_ERROR(ReadSize(json, "sliding_window_pattern", kMaxLayers, kMaxLayers + 1, &pattern));
  for (int64_t i = 0; i < config->num_layers; ++i) {
    config->sliding_layers.push_back(i >= first && (i + 1) % pattern != 0);
  }
  return OkStatus();
}

Status ReadSlidingWindow(const Json& json, const ConfigRules& rules, ModelConfig* config) {
  if (!rules.has_window) {
    config->sliding_layers.assign(static_cast<size_t>(config->num_layers), false);
    return OkStatus();
  }
  bool is_used = true;
  RETURN_IF_ERROR(ReadBool(json, "use_sliding_window", &is_used));
  RETURN_IF_ERROR(ReadCount(json, "sliding_window", kMaxPositions - 1, &config->sliding_window));
  RETURN_IF_ERROR(ReadSlidingLayers(json, config));
  config->names_window = config->sliding_window > 0;
  auto& layers = config->sliding_layers;
  if (!is_used || config->sliding_window == 0) layers.assign(layers.size(), false);
  if (std::find(layers.begin(), layers.end(), true) == layers.end()) config->sliding_window = 0;
  if (rules.window_is_before_token && config->sliding_window > 0) ++config->sliding_window;
  return OkStatus();
}

// Every decoder_sparse_step-th layer except those that mlp_only_layers lists.
Status ReadMixtureLayers(const Json& json, ModelConfig* config) {
  int64_t step = 1;
  RETURN_IF_ERROR(ReadSize(json, "decoder_sparse_step", kMaxLayers, 1, &step));
  for (int64_t i = 0; i < config->num_layers; ++i) {
    config->mixture_layers.push_back(config->num_experts > 0 && (i + 1) % step == 0);
  }
  const Json* dense = Find(json, "mlp_only_layers");
  if (dense == nullptr) return OkStatus();
  for (const Json& layer : *dense) {
    if (!dense->is_array() || !layer.is_number_unsigned()) {
      return BadValue("mlp_only_layers", *dense, "a list of layer numbers");
    }
    const auto i = layer.get<uint64_t>();
    if (i < config->mixture_layers.size()) config->mixture_layers[i] = false;
  }
  return OkStatus();
}

// transformers 5 names the kind of each MLP beside first_k_dense_replace, or instead of it.
Status ReadMlpTypes(const Json& json, ModelConfig* config) {
  const Json* types = Find(json, "mlp_layer_types");
  if (types == nullptr || config->num_experts == 0) return OkStatus();
  if (!types->is_array() || types->size() != config->mixture_layers.size()) {
    return InvalidArgumentError("mlp_layer_types must name a type for each layer");
  }
  for (size_t i = 0; i < types->size(); ++i) {
    const Json& type = (*types)[i];
    if (type != "dense" && type != "sparse") {
      return BadValue("mlp_layer_types", *types, "a list of dense and sparse");
    }
    config->mixture_layers[i] = type == "sparse";
  }
  return OkStatus();
}

// The keys of DeepSeek's family.
Status ReadRoutedExperts(const Json& json, ModelConfig* config) {
  int64_t first = 0, step = 1, num_shared = 0;
  RETURN_IF_ERROR(ReadSize(json, "n_routed_experts", kMaxExperts, 0, &config->num_experts));
  RETURN_IF_ERROR(ReadCount(json, "first_k_dense_replace", kMaxLayers, &first));
  RETURN_IF_ERROR(ReadSize(json, "moe_layer_freq", kMaxLayers, 1, &step));
  for (int64_t i = 0; i < config->num_layers; ++i) {
    config->mixture_layers.push_back(config->num_experts > 0 && i >= first && i % step == 0);
  }
  RETURN_IF_ERROR(ReadMlpTypes(json, config));
  RETURN_IF_ERROR(ReadSize(json, "n_group", kMaxExperts, 1, &config->num_expert_groups));
  RETURN_IF_ERROR(ReadSize(json, "topk_group", kMaxExperts, 1, &config->num_chosen_groups));
  RETURN_IF_ERROR(ReadPositive(json, "routed_scaling_factor", &config->routed_scaling_factor));
  RETURN_IF_ERROR(ReadString(json, "topk_method", &config->topk_method));
  RETURN_IF_ERROR(ReadCount(json, "n_shared_experts", kMaxExperts, &num_shared));
  RETURN_IF_ERROR(ReadSize(json, "moe_latent_size", kMaxDim, 0, &config->moe_latent_size));
  int64_t last = 0;
  const Json* end = Find(json, "moe_layer_end_index");  // may be -1: to the end
  if (end != nullptr && *end != -1) {
    RETURN_IF_ERROR(ReadSize(json, "moe_layer_end_index", kMaxLayers, 0, &last));
    for (int64_t i = last + 1; i < config->num_layers; ++i) config->mixture_layers[i] = false;
  }
  int64_t shared_size = 0;  // of each
  RETURN_IF_ERROR(ReadSize(json, "moe_shared_expert_intermediate_size", kMaxDim,
                           config->moe_intermediate_size, &shared_size));
  config->shared_intermediate_size = num_shared * shared_size;
  return OkStatus();
}

// ReadRecurrent has checked the types.
Status ReadMixtureTypes(const Json& json, ModelConfig* config) {
  const Json* types = Find(json, "layer_types");
  for (size_t i = 0; i < config->mixture_layers.size(); ++i) {
    config->mixture_layers[i] = types != nullptr && (*types)[i] == "moe";
    if (!config->mixture_layers[i]) continue;
    for (const char* key : {"n_routed_experts", "moe_intermediate_size"}) {
      if (Find(json, key) == nullptr) return InvalidArgumentError(std::string(key) + " is missing");
    }
  }
  return OkStatus();
}

// The experts of a mixture. Sizes that the file lacks stay 0.
Status ReadExperts(const Json& json, MixtureLayers mixtures, ModelConfig* config) {
  if (mixtures == MixtureLayers::kNone) return OkStatus();
  RETURN_IF_ERROR(ReadSize(json, "num_experts", kMaxExperts, 0, &config->num_experts));
  RETURN_IF_ERROR(
      ReadSize(json, "num_local_experts", kMaxExperts, config->num_experts, &config->num_experts));
  RETURN_IF_ERROR(
      ReadSize(json, "num_experts_per_tok", kMaxExperts, 0, &config->num_experts_per_tok));
  RETURN_IF_ERROR(ReadBool(json, "norm_topk_prob", &config->norm_topk_prob));
  if (Find(json, "router_jitter_noise") != nullptr && json["router_jitter_noise"] != 0) {
    RETURN_IF_ERROR(ReadPositive(json, "router_jitter_noise", &config->router_jitter_noise));
  }
  if (mixtures == MixtureLayers::kAll) {
    config->mixture_layers.assign(static_cast<size_t>(config->num_layers), true);
    config->moe_intermediate_size = config->intermediate_size;
    return OkStatus();
  }
  RETURN_IF_ERROR(
      ReadSize(json, "moe_intermediate_size", kMaxDim, 0, &config->moe_intermediate_size));
  RETURN_IF_ERROR(ReadCount(json, "shared_expert_intermediate_size", kMaxDim,
                            &config->shared_intermediate_size));
  if (mixtures == MixtureLayers::kByKeys) return ReadMixtureLayers(json, config);
  RETURN_IF_ERROR(ReadRoutedExperts(json, config));
  return mixtures == MixtureLayers::kByTypes ? ReadMixtureTypes(json, config) : OkStatus();
}

// The object that describes the text model: the whole file, or text_config merged with the keys
// beside it.
StatusOr<Json> ReadTextConfig(std::string_view text, ModelConfig* config) {
  ASSIGN_OR_RETURN(Json json, ParseJsonObject(text));
  RETURN_IF_ERROR(ReadArchitecture(json, config));
  RETURN_IF_ERROR(ReadVisionConfig(json, config->architecture, &config->vision));
  if (const Json* nested = Find(json, "text_config")) {
    if (!nested->is_object()) return BadValue("text_config", *nested, "an object");
    Json merged = *nested;
    json.erase("text_config");
    json.erase("model_type");  // the text model's own is inside text_config
    merged.update(json);
    json = std::move(merged);
    RETURN_IF_ERROR(ReadString(json, "model_type", &config->model_type));
  }
  TakeTextModel(&json, config);
  return json;
}

// The file's keys with the architecture's defaults and overrides. A null in the file replaces the
// default: HF writes it to switch a feature off.
StatusOr<Json> WithRules(const Json& json, const ConfigRules& rules) {
  ASSIGN_OR_RETURN(Json keys, ParseJsonObject(rules.defaults));
  ASSIGN_OR_RETURN(const Json overrides, ParseJsonObject(rules.overrides));
  ASSIGN_OR_RETURN(const Json renames, ParseJsonObject(rules.renames));
  Json renamed = json;
  for (const auto& [from, to] : renames.items()) renamed.erase(from);
  for (const auto& [from, to] : renames.items()) {
    const auto value = json.find(from);
    if (value != json.end()) renamed[to.get<std::string>()] = *value;
  }
  keys.update(renamed);
  keys.update(overrides);
  return keys;
}

Status CheckRequired(const Json& json, const ConfigRules& rules, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const Json required, ParseJsonObject(rules.required));
  for (const auto& [key, only] : required.items()) {
    const Json* value = Find(json, key.c_str());
    if (value == nullptr || *value == only) continue;
    return UnimplementedError(key + " " + value->dump() + " of " + config.architecture +
                              " is not built, must be " + only.dump());
  }
  return OkStatus();
}

// What BERT's family calls by other names.
void Respell(Json* json) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"layer_norm_eps", "rms_norm_eps"},
      {"norm_eps", "rms_norm_eps"},
      {"global_rope_theta", "rope_theta"},
      {"local_rope_theta", "rope_local_base_freq"},
      {"local_attention", "sliding_window"}};
  for (const auto& [theirs, ours] : kNames) {
    if (Find(*json, theirs) != nullptr) (*json)[ours] = (*json)[theirs];
  }
}

Status ReadEncoder(const Json& json, const ConfigRules& rules, ModelConfig* config) {
  config->is_bidirectional = true;
  const Json* positions = Find(json, "position_embedding_type");
  if (positions != nullptr && rules.has_rope && *positions != "rotary" && *positions != "rope") {
    return BadValue("position_embedding_type", *positions, "rotary");
  }
  if (positions != nullptr && !rules.has_rope && *positions != "absolute") {
    return BadValue("position_embedding_type", *positions, "absolute");
  }
  RETURN_IF_ERROR(ReadSize(json, "type_vocab_size", kMaxDim, 0, &config->num_token_types));
  if (config->architecture.find("oberta") == std::string::npos) return OkStatus();
  // Positions begin after the padding's.
  const Json* padding = Find(json, "pad_token_id");
  const bool is_id = padding != nullptr && padding->is_number_unsigned();
  config->position_offset = is_id ? padding->get<int64_t>() + 1 : 2;
  config->max_position_embeddings -= config->position_offset;
  if (config->max_position_embeddings > 0) return OkStatus();
  return InvalidArgumentError("pad_token_id must be less than max_position_embeddings");
}

// Of ModernBERT: every n-th layer sees all tokens, beginning with the first.
Status ReadGlobalLayers(const Json& json, ModelConfig* config) {
  int64_t every = 0;
  RETURN_IF_ERROR(ReadSize(json, "global_attn_every_n_layers", kMaxLayers, 0, &every));
  if (every == 0 || Find(json, "layer_types") != nullptr) return OkStatus();
  for (size_t i = 0; i < config->sliding_layers.size(); ++i) {
    config->sliding_layers[i] = static_cast<int64_t>(i) % every != 0;
  }
  return OkStatus();
}

Status ReadRopes(const Json& json, const ConfigRules& rules, ModelConfig* config) {
  const int64_t rope_dim = rules.has_latent      ? config->latent.pe_dim
                           : config->is_uneven() ? config->uneven.global_head_dim
                                                 : config->head_dim;
  ASSIGN_OR_RETURN(RopeConfigs ropes, ReadRope(json, rope_dim, config->max_position_embeddings));
  if (rules.local_rope == LocalRope::kSame && config->sliding_window > 0 && ropes.has_local_rope &&
      ropes.local_rope != ropes.rope) {
    return UnimplementedError(
        "rope_local_base_freq, or rope_parameters of sliding_attention, that differ from the rope "
        "of other layers are not built for " +
        config->architecture);
  }
  if (rules.local_rope == LocalRope::kUnscaled && !ropes.has_local_rope) {
    const double theta = ropes.rope.theta;
    ropes.local_rope = RopeConfig();
    ropes.local_rope.theta = theta;
  }
  config->rope = std::move(ropes.rope);
  config->local_rope = std::move(ropes.local_rope);
  config->rotary_dim = rules.has_rope ? ropes.rotary_dim : 0;
  config->local_rotary_dim = config->is_uneven() ? config->head_dim : config->rotary_dim;
  return OkStatus();
}

Status ReadKeys(const Json& json, const ConfigRules& rules, ModelConfig* config) {
  RETURN_IF_ERROR(CheckRequired(json, rules, *config));
  RETURN_IF_ERROR(ReadShape(json, rules, config));
  if (rules.has_latent) RETURN_IF_ERROR(ReadLatent(json, config));
  if (rules.has_index) RETURN_IF_ERROR(ReadKeyIndex(json, config));
  RETURN_IF_ERROR(ReadRecurrent(json, rules.recurrent, rules.states, config->num_layers,
                                config->hidden_size, &config->recurrent));
  RETURN_IF_ERROR(ReadBool(json, "attn_output_gate", &config->attn_output_gate));
  RETURN_IF_ERROR(ReadPositive(json, Spelled(json, "rms_norm_eps", "layer_norm_epsilon"),
                               &config->rms_norm_eps));
  RETURN_IF_ERROR(
      ReadString(json, Spelled(json, "hidden_act", "activation_function"), &config->hidden_act));
  RETURN_IF_ERROR(ReadString(json, "hidden_activation", &config->hidden_act));
  config->has_gated_mlp = rules.has_gated_mlp;
  RETURN_IF_ERROR(ReadGemma(json, config));
  RETURN_IF_ERROR(ReadExperts(json, rules.mixtures, config));
  RETURN_IF_ERROR(ReadBool(json, "scale_attn_weights", &config->scale_attn_weights));
  RETURN_IF_ERROR(
      ReadBool(json, "scale_attn_by_inverse_layer_idx", &config->scale_attn_by_inverse_layer_idx));
  for (const char* key : {"quantization_config", "compression_config"}) {
    const Json* quantization = Find(json, key);
    if (quantization == nullptr) continue;
    auto parsed = ParseQuantization(*quantization);
    if (!parsed.ok()) return parsed.status().WithContext(key);
    config->quantization = *parsed;
    break;
  }
  RETURN_IF_ERROR(ReadFamilyKeys(json, rules, config));
  RETURN_IF_ERROR(ReadSlidingWindow(json, rules, config));
  if (rules.is_uneven) RETURN_IF_ERROR(ReadUneven(json, config));
  RETURN_IF_ERROR(ReadRopes(json, rules, config));
  if (rules.is_encoder) {
    RETURN_IF_ERROR(ReadEncoder(json, rules, config));
    RETURN_IF_ERROR(ReadGlobalLayers(json, config));
  }
  RETURN_IF_ERROR(ReadDtype(json, &config->dtype));
  return ReadEosIds(json, config->vocab_size, &config->eos_token_ids);
}

StatusOr<ModelConfig> ParseConfigJson(std::string_view text, FindConfigRules find_rules) {
  ModelConfig config;
  ASSIGN_OR_RETURN(Json json, ReadTextConfig(text, &config));
  const StatusOr<ConfigRules> rules = find_rules(config.architecture);
  if (!rules.ok() && config.architecture.ends_with("ForConditionalGeneration")) {
    return UnimplementedError("architecture " + config.architecture +
                              " takes more than text, and its text model is not built");
  }
  RETURN_IF_ERROR(rules.status());
  if (rules->is_encoder) Respell(&json);
  ASSIGN_OR_RETURN(json, WithRules(json, *rules));
  if (rules->spell != nullptr) RETURN_IF_ERROR(rules->spell(&json));
  RETURN_IF_ERROR(ReadKeys(json, *rules, &config));
  if (config.vision.family == VisionFamily::kSiglip) config.vision.out_size = config.hidden_size;
  return config;
}

}  // namespace

int64_t ModelConfig::KvLayerOf(int64_t layer) const {
  const int64_t first_sharing = num_layers - uneven.num_sharing_layers;
  if (layer < first_sharing) return layer;
  int64_t kept = first_sharing - 1;
  while (kept > 0 && IsGlobal(kept) != IsGlobal(layer)) --kept;
  return kept;
}

StatusOr<ModelConfig> ParseModelConfig(std::string_view config_text,
                                       std::string_view generation_config,
                                       FindConfigRules find_rules) {
  StatusOr<ModelConfig> config = ParseConfigJson(config_text, find_rules);
  if (!config.ok()) return config.status().WithContext("config.json");
  if (generation_config.empty()) return config;
  StatusOr<Json> json = ParseJsonObject(generation_config);
  if (!json.ok()) return json.status().WithContext("generation_config.json");
  Status status = ReadEosIds(*json, config->vocab_size, &config->eos_token_ids);
  if (status.ok()) {
    status = ReadBool(*json, "attn_temperature_tuning", &config->attn_temperature_tuning);
  }
  if (!status.ok()) return status.WithContext("generation_config.json");
  return config;
}

StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir, FindConfigRules find_rules) {
  return ReadModelConfig(model_dir, find_rules, {});
}

namespace {

// Of a GGUF file that was packed; nullopt where the model is no such folder.
StatusOr<std::optional<ModelConfig>> ReadPackedGgufConfig(const std::string& model_dir,
                                                          FindConfigRules find_rules) {
  const std::string path = FindPackedFile(model_dir);
  if (path.empty()) return std::optional<ModelConfig>();
  ASSIGN_OR_RETURN(const std::unique_ptr<PackedFile> file, PackedFile::Open(path));
  const std::optional<PackedGgufConfig>& gguf = file->facts().gguf;
  if (!gguf) return std::optional<ModelConfig>();
  auto config = ParseModelConfig(gguf->config, "", find_rules);
  if (!config.ok()) return config.status().WithContext(path);
  config->quantization = {.method = QuantizationMethod::kGguf,
                          .tensor_types = gguf->tensor_types,
                          .layer_bits = gguf->layer_bits,
                          .table_bits = gguf->table_bits};
  return std::optional<ModelConfig>(*std::move(config));
}

}  // namespace

StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir, FindConfigRules find_rules,
                                      std::string_view hf_overrides) {
  ASSIGN_OR_RETURN(std::optional<ModelConfig> packed, ReadPackedGgufConfig(model_dir, find_rules));
  if (packed) {
    if (hf_overrides.empty()) return *std::move(packed);
    return InvalidArgumentError("--hf-overrides changes config.json, which the GGUF file that " +
                                model_dir + " was packed of does not have");
  }
  ASSIGN_OR_RETURN(const std::string gguf, FindGgufFile(model_dir));
  if (!gguf.empty()) {
    if (!hf_overrides.empty()) {
      return InvalidArgumentError("--hf-overrides changes config.json, which " + gguf +
                                  " does not have");
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(gguf));
    return ReadGgufConfig(*file, find_rules);
  }
  ASSIGN_OR_RETURN(std::string config, ReadFile(model_dir + "/config.json", kMaxJsonFileBytes));
  if (!hf_overrides.empty()) {
    StatusOr<Json> file = ParseJsonObject(config);
    if (!file.ok()) return file.status().WithContext(model_dir + "/config.json");
    const StatusOr<Json> changes = ParseJsonObject(hf_overrides);
    if (!changes.ok()) return changes.status().WithContext("--hf-overrides");
    file->update(*changes, /*merge_objects=*/true);
    config = file->dump();
  }
  ASSIGN_OR_RETURN(const std::string generation,
                   ReadFileIfAny(model_dir + "/generation_config.json", kMaxJsonFileBytes));
  StatusOr<ModelConfig> parsed = ParseModelConfig(config, generation, find_rules);
  if (!parsed.ok()) return parsed.status().WithContext(model_dir);
  if (parsed->quantization.method == QuantizationMethod::kNone) {
    ASSIGN_OR_RETURN(parsed->quantization, ReadQuantizationFile(model_dir));
  }
  return parsed;
}

}  // namespace tandem
