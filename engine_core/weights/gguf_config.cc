#include "engine_core/weights/gguf_config.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "engine_core/weights/gguf_architectures.h"
#include "engine_core/weights/gguf_layers.h"
#include "engine_core/weights/json_file.h"
#include "gguf/end_tokens.h"
#include "kernels/block_format.h"
#include "kernels/stored_blocks.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr GgufKey kKeys[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_epsilon", "rms_norm_eps", true},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
    {"attention.sliding_window", "sliding_window"},
    {"attn_logit_softcapping", "attn_logit_softcapping", true},
    {"final_logit_softcapping", "final_logit_softcapping", true},
    {"rope.freq_base", "rope_theta", true},
    {"rope.freq_base_swa", "rope_local_base_freq", true},
    {"expert_count", "num_local_experts"},
    {"expert_count", "n_routed_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
};

constexpr GgufKey kPatternKey = {"attention.sliding_window_pattern", "sliding_window_pattern"};

// What rope.scaling.factor was called before.
constexpr GgufKey kOldFactor = {"rope.scale_linear", "factor", true};

// Of rope.scaling.
constexpr GgufKey kScalingKeys[] = {
    {"factor", "factor", true},
    {"original_context_length", "original_max_position_embeddings"},
    {"attn_factor", "attention_factor", true},
    {"yarn_attn_factor", "attention_factor", true},
    {"yarn_beta_fast", "beta_fast", true},
    {"yarn_beta_slow", "beta_slow", true},
};

// An array has a number for each layer, 0 where the layer has no such part: the largest counts.
Status CopyKey(const GgufMetadata& metadata, const std::string& key, const GgufKey& row,
               Json* config) {
  const auto found = metadata.values().find(key);
  if (found == metadata.values().end()) return OkStatus();
  if (found->second.is_array && !row.is_number) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, metadata.Integers(key));
    const auto largest = std::max_element(numbers.begin(), numbers.end());
    (*config)[row.hf] = largest == numbers.end() ? 0 : *largest;
  } else if (row.is_number) {
    ASSIGN_OR_RETURN((*config)[row.hf], metadata.Number(key, 0));
  } else {
    ASSIGN_OR_RETURN((*config)[row.hf], metadata.Integer(key, 0));
  }
  return OkStatus();
}

// Which layers have a window: every n-th has none, or a list says so.
Status AddWindows(const GgufMetadata& metadata, const std::string& prefix, Json* config) {
  const std::string key = prefix + std::string(kPatternKey.gguf);
  const auto found = metadata.values().find(key);
  if (found == metadata.values().end() || !found->second.is_array) {
    return CopyKey(metadata, key, kPatternKey, config);
  }
  const GgufValue& list = found->second;
  if (list.type != GgufValueType::kBool) {
    return InvalidArgumentError("key " + key + " must be an integer or an array of bools");
  }
  Json types = Json::array();
  for (const std::byte has_window : list.bytes) {
    types.push_back(has_window == std::byte{0} ? "full_attention" : "sliding_attention");
  }
  (*config)["layer_types"] = std::move(types);
  return OkStatus();
}

// Numbers by which rope's frequencies are divided.
StatusOr<Json> ReadFactors(const GgufFile& file, const char* name) {
  const GgufTensor& tensor = *file.Find(name);
  if (tensor.type->name != "F32" || tensor.shape.size() != 1) {
    return InvalidArgumentError("tensor " + std::string(name) + " must be a vector of F32");
  }
  Json factors = Json::array();
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    float factor;
    std::memcpy(&factor, tensor.bytes.data() + i * int64_t{sizeof factor}, sizeof factor);
    factors.push_back(factor);
  }
  return factors;
}

// llama3's scaling is stored as what it makes of each frequency, LongRoPE's as its two lists.
Status AddRopeFactors(const GgufFile& file, Json* config, Json* scaling) {
  constexpr const char *kOne = "rope_freqs.weight", *kShort = "rope_factors_short.weight",
                       *kLong = "rope_factors_long.weight";
  if (file.Find(kOne) != nullptr) {
    ASSIGN_OR_RETURN(const Json factors, ReadFactors(file, kOne));
    *scaling = {{"type", "longrope"},
                {"short_factor", factors},
                {"long_factor", factors},
                {"attention_factor", 1}};
  } else if (file.Find(kShort) != nullptr && file.Find(kLong) != nullptr) {
    ASSIGN_OR_RETURN((*scaling)["short_factor"], ReadFactors(file, kShort));
    ASSIGN_OR_RETURN((*scaling)["long_factor"], ReadFactors(file, kLong));
    (*scaling)["type"] = "longrope";
    const auto original = scaling->find("original_max_position_embeddings");
    if (original != scaling->end()) (*config)["original_max_position_embeddings"] = *original;
  }
  return OkStatus();
}

Status AddRope(const GgufFile& file, const std::string& prefix, Json* config) {
  const GgufMetadata& metadata = file.metadata();
  Json scaling = config->value("rope_scaling", Json::object());
  config->erase("rope_scaling");
  ASSIGN_OR_RETURN(const std::string_view type, metadata.String(prefix + "rope.scaling.type", ""));
  if (!type.empty() && type != "none") scaling["type"] = std::string(type);
  RETURN_IF_ERROR(CopyKey(metadata, prefix + std::string(kOldFactor.gguf), kOldFactor, &scaling));
  for (const GgufKey& row : kScalingKeys) {
    RETURN_IF_ERROR(
        CopyKey(metadata, prefix + "rope.scaling." + std::string(row.gguf), row, &scaling));
  }
  // Files of before the type have linear factors; 0 is none.
  if (type.empty() && scaling.value("factor", 0.0) != 0) scaling["type"] = "linear";
  // DeepSeek's factor of the scores, of which both parts are equal.
  const std::string factor = prefix + "rope.scaling.yarn_log_multiplier";
  if (metadata.Has(factor)) {
    ASSIGN_OR_RETURN(const double tenth, metadata.Number(factor, 0));
    scaling["mscale"] = scaling["mscale_all_dim"] = 10 * tenth;
  }
  RETURN_IF_ERROR(AddRopeFactors(file, config, &scaling));
  if (scaling.contains("type")) (*config)["rope_scaling"] = scaling;
  return OkStatus();
}

// Gemma 4's: where a layer sees all keys, a part of the frequencies turns, and the others are
// divided by so much that they do not.
Status AddTwoRopes(const GgufFile& file, Json* config) {
  constexpr const char* kFactors = "rope_freqs.weight";
  double turning = 1;
  if (file.Find(kFactors) != nullptr) {
    ASSIGN_OR_RETURN(const Json factors, ReadFactors(file, kFactors));
    const auto num_turning = std::count(factors.begin(), factors.end(), 1);
    turning = static_cast<double>(num_turning) / std::max(1.0, static_cast<double>(factors.size()));
  }
  (*config)["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"},
        {"rope_theta", config->value("rope_theta", 1e6)},
        {"partial_rotary_factor", turning}}},
      {"sliding_attention", {{"rope_theta", config->value("rope_local_base_freq", 1e4)}}}};
  config->erase("partial_rotary_factor");
  return OkStatus();
}

// head_dim and what of it RoPE turns. There may be no attention at all.
Status AddHeads(const GgufMetadata& metadata, const std::string& prefix, Json* config) {
  ASSIGN_OR_RETURN(const int64_t hidden, metadata.Integer(prefix + "embedding_length", 0));
  ASSIGN_OR_RETURN(const int64_t heads, metadata.Integer(prefix + "attention.head_count", 0));
  if (hidden > 0 && heads == 0 && metadata.Has(prefix + "ssm.inner_size")) return OkStatus();
  if (hidden < 1 || heads < 1) {
    return InvalidArgumentError("keys " + prefix + "embedding_length and " + prefix +
                                "attention.head_count must be above 0");
  }
  ASSIGN_OR_RETURN(const int64_t key_length,
                   metadata.Integer(prefix + "attention.key_length", hidden / heads));
  ASSIGN_OR_RETURN(const int64_t value_length,
                   metadata.Integer(prefix + "attention.value_length", key_length));
  if (key_length < 1 || value_length != key_length) {
    return UnimplementedError("key " + prefix + "attention.value_length is " +
                              std::to_string(value_length) + ", must equal attention.key_length " +
                              std::to_string(key_length));
  }
  (*config)["head_dim"] = key_length;
  ASSIGN_OR_RETURN(const int64_t rotated,
                   metadata.Integer(prefix + "rope.dimension_count", key_length));
  if (rotated != key_length) {
    (*config)["partial_rotary_factor"] =
        static_cast<double>(rotated) / static_cast<double>(key_length);
  }
  return OkStatus();
}

// The sizes of latent attention and of its index: a head's own, beside those of the one key-value
// head that files have instead of them since keys and values are stored apart.
Status AddLatents(const GgufMetadata& metadata, const std::string& prefix, Json* config) {
  constexpr GgufKey kLatentKeys[] = {{"attention.q_lora_rank", "q_lora_rank"},
                                     {"attention.kv_lora_rank", "kv_lora_rank"},
                                     {"attention.value_length", "v_head_dim"},
                                     {"attention.value_length_mla", "v_head_dim"},
                                     {"rope.dimension_count", "qk_rope_head_dim"},
                                     {"attention.indexer.head_count", "index_n_heads"},
                                     {"attention.indexer.key_length", "index_head_dim"},
                                     {"attention.indexer.top_k", "index_topk"}};
  for (const GgufKey& row : kLatentKeys) {
    RETURN_IF_ERROR(CopyKey(metadata, prefix + std::string(row.gguf), row, config));
  }
  ASSIGN_OR_RETURN(const int64_t cached, metadata.Integer(prefix + "attention.key_length", 0));
  ASSIGN_OR_RETURN(const int64_t whole,
                   metadata.Integer(prefix + "attention.key_length_mla", cached));
  ASSIGN_OR_RETURN(const int64_t rotated, metadata.Integer(prefix + "rope.dimension_count", 0));
  if (rotated < 1 || whole <= rotated) {
    return InvalidArgumentError("key " + prefix + "attention.key_length_mla must be above " +
                                prefix + "rope.dimension_count, and that above 0");
  }
  (*config)["qk_nope_head_dim"] = whole - rotated;
  config->erase("head_dim");
  config->erase("num_key_value_heads");
  const bool has_groups = config->value("n_group", int64_t{1}) > 1;
  (*config)["topk_method"] = has_groups ? "group_limited_greedy" : "greedy";
  return OkStatus();
}

// Gemma's largest models scale scores by another size than that of a head.
void AddScoreScale(const GgufArchitecture& architecture, Json* config) {
  const bool is_27b = (architecture.name == "gemma2" && (*config)["num_hidden_layers"] == 46) ||
                      (architecture.name == "gemma3" && (*config)["num_hidden_layers"] == 62);
  if (!architecture.name.starts_with("gemma")) return;
  (*config)["query_pre_attn_scalar"] = is_27b ? (*config)["hidden_size"].get<int64_t>() /
                                                    (*config)["num_attention_heads"].get<int64_t>()
                                              : (*config)["head_dim"].get<int64_t>();
}

// "97 F32, 169 Q4_K, 25 Q6_K".
std::string TensorTypes(const GgufFile& file) {
  std::map<std::string_view, int64_t> counts;
  for (const auto& [name, tensor] : file.tensors()) ++counts[tensor.type->name];
  std::string text;
  for (const auto& [type, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + std::string(type);
  }
  return text;
}

// Mean bits of the matrices of layers, or of the tables of the vocabulary, as they are kept.
double MeanBits(const GgufFile& file, bool of_tables) {
  constexpr double kNumberBits = 16;
  double bits = 0, weights = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool is_table = name == "token_embd.weight" || name == "output.weight";
    if (tensor.shape.size() < 2 || is_table != of_tables) continue;
    double size = 1;
    for (const int64_t dim : tensor.shape) size *= static_cast<double>(dim);
    const BlockFormat* const format = FindBlockFormat(tensor.type->name);
    bits += size * (format != nullptr ? StoredBits(*format) : kNumberBits);
    weights += size;
  }
  return weights > 0 ? bits / weights : 0;
}

// What HF's classes call the architecture.
std::string HfName(const GgufFile& file, const GgufArchitecture& architecture, bool is_mixture,
                   const Json& config) {
  // OLMo 3 is OLMo 2 with windows.
  if (architecture.name == "olmo2" && config.contains("sliding_window")) {
    return "Olmo3ForCausalLM";
  }
  if (!is_mixture) return std::string(architecture.hf_name);
  const bool has_bias = !architecture.hf_biased_mixture.empty() &&
                        std::any_of(file.tensors().begin(), file.tensors().end(), [](auto& each) {
                          return each.first.ends_with(".exp_probs_b.bias");
                        });
  return std::string(has_bias ? architecture.hf_biased_mixture : architecture.hf_mixture);
}

// Those of all architectures, then its own.
Status AddKeys(const GgufMetadata& metadata, const GgufArchitecture& architecture,
               const std::string& prefix, Json* config) {
  for (const std::span<const GgufKey> keys : {std::span<const GgufKey>(kKeys), architecture.keys}) {
    for (const GgufKey& row : keys) {
      RETURN_IF_ERROR(CopyKey(metadata, prefix + std::string(row.gguf), row, config));
    }
  }
  for (const auto& [gguf, hf] : {std::pair{"expert_weights_norm", "norm_topk_prob"},
                                 std::pair{"use_parallel_residual", "use_parallel_residual"}}) {
    if (!metadata.Has(prefix + gguf)) continue;
    ASSIGN_OR_RETURN((*config)[hf], metadata.Bool(prefix + gguf, false));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> GgufConfigJson(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  ASSIGN_OR_RETURN(const GgufArchitecture* architecture, FindGgufArchitecture(metadata));
  const std::string prefix = std::string(architecture->name) + ".";
  ASSIGN_OR_RETURN(Json config, ParseJsonObject(architecture->config));
  RETURN_IF_ERROR(AddKeys(metadata, *architecture, prefix, &config));
  const bool is_mixture = config.value("num_local_experts", int64_t{0}) > 0;
  if (is_mixture && architecture->hf_mixture.empty()) {
    return UnimplementedError(prefix + "expert_count is not 0: mixtures of experts are not " +
                              "supported for " + std::string(architecture->name));
  }
  RETURN_IF_ERROR(AddWindows(metadata, prefix, &config));
  config["architectures"] = {HfName(file, *architecture, is_mixture, config)};
  if (!is_mixture) {
    for (const char* key : {"num_local_experts", "n_routed_experts"}) config.erase(key);
  }
  RETURN_IF_ERROR(architecture->has_latents ? AddLatents(metadata, prefix, &config)
                                            : AddHeads(metadata, prefix, &config));
  RETURN_IF_ERROR(AddLayers(file, *architecture, &config));
  RETURN_IF_ERROR(architecture->is_uneven ? AddTwoRopes(file, &config)
                                          : AddRope(file, prefix, &config));
  AddScoreScale(*architecture, &config);
  const GgufTensor* const embedding = file.Find("token_embd.weight");
  if (embedding == nullptr) return NotFoundError("tensor token_embd.weight is missing");
  config["vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = file.Find("output.weight") == nullptr;
  config["attention_bias"] =
      !architecture->has_qkv_bias &&
      (file.Find("blk.0.attn_q.bias") != nullptr || file.Find("blk.0.attn_output.bias") != nullptr);
  config["mlp_bias"] = file.Find("blk.0.ffn_up.bias") != nullptr;
  config["lm_head_bias"] = file.Find("output.bias") != nullptr;
  config["use_qk_norm"] = file.Find("blk.0.attn_q_norm.weight") != nullptr;
  ASSIGN_OR_RETURN(config["eos_token_id"], GgufEndTokens(metadata));
  return config.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file, FindConfigRules find_rules) {
  const auto text = GgufConfigJson(file);
  if (!text.ok()) return text.status().WithContext(file.path());
  auto config = ParseModelConfig(*text, "", find_rules);
  if (!config.ok()) return config.status().WithContext(file.path() + ": its keys as");
  config->quantization.method = QuantizationMethod::kGguf;
  config->quantization.tensor_types = TensorTypes(file);
  config->quantization.layer_bits = MeanBits(file, /*of_tables=*/false);
  config->quantization.table_bits = MeanBits(file, /*of_tables=*/true);
  return config;
}

}  // namespace tandem
