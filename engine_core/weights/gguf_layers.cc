#include "engine_core/weights/gguf_layers.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxLayers = 10'000;

bool HasTensor(const GgufFile& file, int64_t layer, const char* name) {
  return file.Find("blk." + std::to_string(layer) + "." + name) != nullptr;
}

bool HasTensor(const GgufFile& file, const Json& config, const char* name) {
  const int64_t num_layers = config["num_hidden_layers"];
  for (int64_t i = 0; i < num_layers; ++i) {
    if (HasTensor(file, i, name)) return true;
  }
  return false;
}

// Layers that predict tokens further ahead come after the model's own.
Status AddCount(const GgufMetadata& metadata, const std::string& prefix, Json* config) {
  ASSIGN_OR_RETURN(const int64_t all, metadata.Integer(prefix + "block_count", 0));
  ASSIGN_OR_RETURN(const int64_t ahead, metadata.Integer(prefix + "nextn_predict_layers", 0));
  if (all < 1 || all > kMaxLayers || ahead < 0 || ahead >= all) {
    return InvalidArgumentError("key " + prefix + "block_count is " + std::to_string(all) +
                                ", must be in [1, " + std::to_string(kMaxLayers) +
                                "] and above nextn_predict_layers");
  }
  (*config)["num_hidden_layers"] = all - ahead;
  return OkStatus();
}

void AddKinds(const GgufFile& file, RecurrentKind states, Json* config) {
  const int64_t num_layers = (*config)["num_hidden_layers"];
  Json types = Json::array(), dense = Json::array();
  for (int64_t i = 0; i < num_layers; ++i) {
    const bool has_state =
        HasTensor(file, i, "ssm_out.weight") || HasTensor(file, i, "shortconv.out_proj.weight");
    const bool has_experts = HasTensor(file, i, "ffn_gate_inp.weight");
    types.push_back(has_state                                  ? "mamba"
                    : HasTensor(file, i, "attn_output.weight") ? "attention"
                    : has_experts                              ? "moe"
                                                               : "mlp");
    if (!has_experts) dense.push_back(i);
    // Nemotron-H's key has the size of experts where it has both.
    const GgufTensor* const up = file.Find("blk." + std::to_string(i) + ".ffn_up.weight");
    if (types.back() == "mlp" && up != nullptr) (*config)["intermediate_size"] = up->shape[0];
  }
  const bool has_states = states != RecurrentKind::kNone;
  if (has_states || dense.size() < types.size()) (*config)["mlp_only_layers"] = std::move(dense);
  if (has_states) (*config)["layer_types"] = std::move(types);
}

// The sizes of ssm.*, for each kind in the spelling that it is read by.
Status AddStates(const GgufFile& file, const std::string& prefix, RecurrentKind kind,
                 Json* config) {
  if (kind == RecurrentKind::kNone || kind == RecurrentKind::kShortConv) return OkStatus();
  const GgufMetadata& metadata = file.metadata();
  ASSIGN_OR_RETURN(const int64_t kernel, metadata.Integer(prefix + "ssm.conv_kernel", 0));
  ASSIGN_OR_RETURN(const int64_t inner, metadata.Integer(prefix + "ssm.inner_size", 0));
  ASSIGN_OR_RETURN(const int64_t states, metadata.Integer(prefix + "ssm.state_size", 0));
  ASSIGN_OR_RETURN(const int64_t heads, metadata.Integer(prefix + "ssm.time_step_rank", 0));
  ASSIGN_OR_RETURN(const int64_t groups, metadata.Integer(prefix + "ssm.group_count", 1));
  const auto hidden = config->value("hidden_size", int64_t{0});
  const int64_t parts = kind == RecurrentKind::kSelective ? hidden : heads;
  if (parts < 1 || inner < 1 || inner % parts != 0) {
    return InvalidArgumentError("key " + prefix + "ssm.inner_size is " + std::to_string(inner) +
                                ", must be a multiple of " + std::to_string(parts));
  }
  if (kind == RecurrentKind::kDelta) {
    config->update({{"linear_conv_kernel_dim", kernel},
                    {"linear_num_key_heads", groups},
                    {"linear_num_value_heads", heads},
                    {"linear_key_head_dim", states},
                    {"linear_value_head_dim", inner / heads}});
    return OkStatus();
  }
  config->update({{"mamba_d_conv", kernel},
                  {"mamba_d_state", states},
                  {"mamba_conv_bias", HasTensor(file, *config, "ssm_conv1d.bias")}});
  if (kind == RecurrentKind::kSelective) {
    config->update({{"mamba_expand", inner / hidden}, {"mamba_dt_rank", heads}});
    return OkStatus();
  }
  config->update({{"mamba_n_heads", heads},
                  {"mamba_d_head", inner / heads},
                  {"mamba_d_ssm", inner},
                  {"mamba_n_groups", groups},
                  {"mamba_rms_norm", HasTensor(file, *config, "ssm_norm.weight")},
                  {"mamba_norm_before_gate", false}});
  return OkStatus();
}

// What a key has for each layer, or the one number that it has for all; empty: there is none.
StatusOr<std::vector<int64_t>> NumbersOf(const GgufMetadata& metadata, const std::string& key) {
  const auto found = metadata.values().find(key);
  if (found == metadata.values().end()) return std::vector<int64_t>();
  if (found->second.is_array) return metadata.Integers(key);
  ASSIGN_OR_RETURN(const int64_t number, metadata.Integer(key, 0));
  return std::vector<int64_t>{number};
}

// Gemma 4's two kinds of layers, of which the last one sees all keys. Layers that read the keys of
// others may have wider MLPs; they are the last.
Status AddUneven(const GgufFile& file, const std::string& prefix, Json* config) {
  const GgufMetadata& metadata = file.metadata();
  const int64_t num_layers = (*config)["num_hidden_layers"];
  const int64_t global_dim = (*config)["head_dim"];
  ASSIGN_OR_RETURN(const int64_t local_dim,
                   metadata.Integer(prefix + "attention.key_length_swa", global_dim));
  ASSIGN_OR_RETURN(const int64_t sharing,
                   metadata.Integer(prefix + "attention.shared_kv_layers", 0));
  ASSIGN_OR_RETURN(const int64_t input,
                   metadata.Integer(prefix + "embedding_length_per_layer_input", 0));
  ASSIGN_OR_RETURN(const std::vector<int64_t> kv_heads,
                   NumbersOf(metadata, prefix + "attention.head_count_kv"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> inner,
                   NumbersOf(metadata, prefix + "feed_forward_length"));
  if (kv_heads.empty() || inner.empty()) {
    return InvalidArgumentError("key " + prefix + "attention.head_count_kv or " + prefix +
                                "feed_forward_length is missing");
  }
  bool keys_are_values = false;
  for (int64_t i = 0; i < num_layers; ++i) {
    keys_are_values = keys_are_values ||
                      (HasTensor(file, i, "attn_k.weight") && !HasTensor(file, i, "attn_v.weight"));
  }
  if (const GgufTensor* const table = file.Find("per_layer_token_embd.weight")) {
    (*config)["vocab_size_per_layer_input"] = table->shape[0];
  }
  config->update({{"head_dim", local_dim},
                  {"global_head_dim", global_dim},
                  {"num_key_value_heads", kv_heads.front()},
                  {"num_global_key_value_heads", kv_heads.back()},
                  {"attention_k_eq_v", keys_are_values},
                  {"num_kv_shared_layers", sharing},
                  {"intermediate_size", inner.front()},
                  {"use_double_wide_mlp", inner.back() > inner.front()},
                  {"hidden_size_per_layer_input", input},
                  {"enable_moe_block", config->contains("num_local_experts")}});
  return OkStatus();
}

}  // namespace

Status AddLayers(const GgufFile& file, const GgufArchitecture& architecture, Json* config) {
  const std::string prefix = std::string(architecture.name) + ".";
  RETURN_IF_ERROR(AddCount(file.metadata(), prefix, config));
  AddKinds(file, architecture.states, config);
  RETURN_IF_ERROR(AddStates(file, prefix, architecture.states, config));
  return architecture.is_uneven ? AddUneven(file, prefix, config) : OkStatus();
}

}  // namespace tandem
