#include "engine_core/weights/uneven_config.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "engine_core/weights/json_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDim = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 10'000;
// The cpu backend cuts a step for the most query heads of a key-value head, and takes these at
// once.
constexpr int64_t kMaxGroup = 32;

Status ReadGlobalHeads(const Json& json, ModelConfig* config) {
  UnevenConfig& uneven = config->uneven;
  RETURN_IF_ERROR(
      ReadSize(json, "global_head_dim", kMaxDim, config->head_dim, &uneven.global_head_dim));
  RETURN_IF_ERROR(ReadBool(json, "attention_k_eq_v", &uneven.keys_are_values));
  uneven.num_global_kv_heads = config->num_kv_heads;
  if (uneven.keys_are_values) {
    RETURN_IF_ERROR(ReadSize(json, "num_global_key_value_heads", kMaxDim, config->num_kv_heads,
                             &uneven.num_global_kv_heads));
  }
  if (uneven.global_head_dim % 2 != 0 || config->num_heads > kMaxDim / uneven.global_head_dim) {
    return InvalidArgumentError("global_head_dim " + std::to_string(uneven.global_head_dim) +
                                " must be even, and not too large");
  }
  for (const auto& [key, count] :
       {std::pair{"num_key_value_heads", config->num_kv_heads},
        std::pair{"num_global_key_value_heads", uneven.num_global_kv_heads}}) {
    if (config->num_heads % count == 0 && config->num_heads / count <= kMaxGroup) continue;
    return InvalidArgumentError(
        std::string(key) + " " + std::to_string(count) + " must divide num_attention_heads " +
        std::to_string(config->num_heads) + " into groups of at most " + std::to_string(kMaxGroup));
  }
  return OkStatus();
}

Status ReadSharing(const Json& json, ModelConfig* config) {
  UnevenConfig& uneven = config->uneven;
  RETURN_IF_ERROR(ReadCount(json, "num_kv_shared_layers", kMaxLayers, &uneven.num_sharing_layers));
  RETURN_IF_ERROR(ReadBool(json, "use_double_wide_mlp", &uneven.has_wide_mlps));
  for (int64_t i = config->num_layers - uneven.num_sharing_layers; i < config->num_layers; ++i) {
    const bool is_kept = uneven.num_sharing_layers < config->num_layers &&
                         config->IsGlobal(config->KvLayerOf(i)) == config->IsGlobal(i);
    if (is_kept) continue;
    return InvalidArgumentError("num_kv_shared_layers " +
                                std::to_string(uneven.num_sharing_layers) +
                                " must leave a layer of each kind before the layers that share");
  }
  return OkStatus();
}

Status ReadInputs(const Json& json, ModelConfig* config) {
  UnevenConfig& uneven = config->uneven;
  RETURN_IF_ERROR(ReadCount(json, "hidden_size_per_layer_input", kMaxDim / config->num_layers,
                            &uneven.input_size));
  if (uneven.input_size == 0) return OkStatus();
  RETURN_IF_ERROR(ReadSize(json, "vocab_size_per_layer_input", kMaxDim, config->vocab_size,
                           &uneven.num_inputs));
  if (uneven.num_inputs >= config->vocab_size) return OkStatus();
  return UnimplementedError("vocab_size_per_layer_input " + std::to_string(uneven.num_inputs) +
                            " below vocab_size " + std::to_string(config->vocab_size) +
                            " is not built");
}

}  // namespace

Status ReadUneven(const Json& json, ModelConfig* config) {
  if (config->is_bidirectional) {
    return UnimplementedError("use_bidirectional_attention of " + config->architecture +
                              " is not built");
  }
  // HF makes the last layer one without a window whatever layer_types says.
  config->sliding_layers.back() = false;
  bool has_mixtures = false;
  RETURN_IF_ERROR(ReadBool(json, "enable_moe_block", &has_mixtures));
  if (!has_mixtures) {
    config->mixture_layers.clear();
    config->num_experts = config->num_experts_per_tok = config->moe_intermediate_size = 0;
  } else if (config->num_experts == 0 || config->moe_intermediate_size == 0) {
    return InvalidArgumentError(
        "enable_moe_block true of " + config->architecture +
        " needs num_experts, top_k_experts and moe_intermediate_size of at least 1");
  }
  RETURN_IF_ERROR(ReadGlobalHeads(json, config));
  RETURN_IF_ERROR(ReadSharing(json, config));
  return ReadInputs(json, config);
}

}  // namespace tandem
