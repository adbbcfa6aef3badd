#include "engine_core/weights/spell_keys.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine_core/weights/json_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDim = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 10'000;

constexpr char kKvHeads[] = "num_key_value_heads";

using Names = std::pair<const char*, const char*>;

// What the file has under their names, under ours too.
void CopyKeys(Json* keys, std::initializer_list<Names> names) {
  for (const auto& [theirs, ours] : names) {
    if (const Json* value = Find(*keys, theirs)) (*keys)[ours] = Json(*value);
  }
}

Status ReadNumLayers(const Json& keys, int64_t* num_layers) {
  return ReadSize(keys, "num_hidden_layers", kMaxLayers, -1, num_layers);
}

// Layers offset, offset + period, ...
struct Period {
  int64_t period = 1, offset = 0;
  bool Has(int64_t layer) const { return layer % period == offset; }
};

Status ReadPeriod(const Json& keys, const char* period, const char* offset, Period* out) {
  RETURN_IF_ERROR(ReadSize(keys, period, kMaxLayers, out->period, &out->period));
  const Json* value = Find(keys, offset);
  if (value == nullptr) return OkStatus();
  if (!value->is_number_unsigned() ||
      value->get<uint64_t>() >= static_cast<uint64_t>(out->period)) {
    return BadValue(offset, *value, std::string("less than ") + period);
  }
  out->offset = value->get<int64_t>();
  return OkStatus();
}

// The type of a layer that the letter stands for; null: no letter.
const char* TypeOfLetter(char letter) {
  switch (letter) {
    case 'M':
      return "mamba";
    case '*':
      return "attention";
    case '-':
      return "mlp";
    case 'E':
      return "moe";
    default:
      return nullptr;
  }
}

// Transformers 5 leaves the number of Nemotron-H's layers to the list of their types.
void CountLayers(Json* keys) {
  if (Find(*keys, "num_hidden_layers") != nullptr) return;
  const Json* types = Find(*keys, "layer_types");
  const Json* pattern = Find(*keys, "hybrid_override_pattern");
  if (pattern != nullptr && pattern->is_string()) {
    (*keys)["num_hidden_layers"] = pattern->get_ref<const std::string&>().size();
  } else if (types != nullptr && types->is_array()) {
    (*keys)["num_hidden_layers"] = types->size();
  }
}

// "MEM*": a letter for each layer.
Status ReadPattern(Json* keys) {
  const Json* pattern = Find(*keys, "hybrid_override_pattern");
  if (pattern == nullptr) return OkStatus();
  int64_t num_layers = 0;
  RETURN_IF_ERROR(ReadNumLayers(*keys, &num_layers));
  const std::string letters = pattern->is_string() ? pattern->get<std::string>() : "";
  Json types = Json::array();
  for (const char letter : letters) {
    if (const char* type = TypeOfLetter(letter)) types.push_back(type);
  }
  if (types.size() != letters.size() || types.size() != static_cast<size_t>(num_layers)) {
    return BadValue("hybrid_override_pattern", *pattern,
                    "one of the letters M, *, - and E for each of the num_hidden_layers");
  }
  (*keys)["layer_types"] = std::move(types);
  return OkStatus();
}

}  // namespace

// In DeepSeek's spelling.
Status SpellKimi(Json* keys) {
  CopyKeys(keys, {{"num_experts", "n_routed_experts"},
                  {"num_experts_per_token", "num_experts_per_tok"},
                  {"num_shared_experts", "n_shared_experts"},
                  {"num_expert_group", "n_group"},
                  {"moe_renormalize", "norm_topk_prob"},
                  {"model_max_length", "max_position_embeddings"}});
  return OkStatus();
}

namespace {

// LFM2's layers with attention may be listed by their numbers.
Status ReadAttentionList(Json* keys) {
  const Json* list = Find(*keys, "full_attn_idxs");
  if (list == nullptr || Find(*keys, "layer_types") != nullptr) return OkStatus();
  int64_t num_layers = 0;
  RETURN_IF_ERROR(ReadNumLayers(*keys, &num_layers));
  Json types(static_cast<size_t>(num_layers), "conv");
  for (const Json& layer : *list) {
    if (!list->is_array() || !layer.is_number_unsigned() || layer.get<uint64_t>() >= types.size()) {
      return BadValue("full_attn_idxs", *list, "a list of layers, counted from 0");
    }
    types[layer.get<size_t>()] = "full_attention";
  }
  (*keys)["layer_types"] = std::move(types);
  return OkStatus();
}

}  // namespace

// The MLP's size is 2/3 of block_ff_dim, times a factor, rounded up to block_multiple_of.
Status SpellLfm2(Json* keys) {
  CopyKeys(keys, {{"norm_eps", "rms_norm_eps"},
                  {"block_ff_dim", "intermediate_size"},
                  {"tie_embedding", "tie_word_embeddings"}});
  if (Find(*keys, "tie_word_embeddings") == nullptr) (*keys)["tie_word_embeddings"] = true;
  RETURN_IF_ERROR(ReadAttentionList(keys));
  bool is_adjusted = true;
  int64_t inner = 0, multiple = 0;
  double factor = 1;
  RETURN_IF_ERROR(ReadBool(*keys, "block_auto_adjust_ff_dim", &is_adjusted));
  RETURN_IF_ERROR(ReadSize(*keys, "intermediate_size", kMaxDim, -1, &inner));
  RETURN_IF_ERROR(ReadSize(*keys, "block_multiple_of", kMaxDim, 256, &multiple));
  RETURN_IF_ERROR(ReadPositive(*keys, "block_ffn_dim_multiplier", &factor));
  if (!is_adjusted) return OkStatus();
  const int64_t two_thirds = 2 * inner / 3;
  inner = static_cast<int64_t>(factor * static_cast<double>(two_thirds));
  inner = (inner + multiple - 1) / multiple * multiple;
  (*keys)["intermediate_size"] = static_cast<uint64_t>(inner);
  return OkStatus();
}

namespace {

// Of a list with a number for each layer, the number that all have.
Status TakeOnly(Json* keys, const char* key) {
  const Json* list = Find(*keys, key);
  if (list == nullptr || !list->is_array()) return OkStatus();
  if (list->empty() || std::any_of(list->begin(), list->end(),
                                   [&](const Json& one) { return one != list->front(); })) {
    return BadValue(key, *list, "the same number for each layer");
  }
  (*keys)[key] = Json(list->front());
  return OkStatus();
}

}  // namespace

// Sizes of a mixture may be lists.
Status SpellHunyuanMoe(Json* keys) {
  for (const char* key :
       {"num_experts", "moe_topk", "moe_intermediate_size", "num_shared_expert"}) {
    RETURN_IF_ERROR(TakeOnly(keys, key));
  }
  CopyKeys(keys, {{"moe_topk", "num_experts_per_tok"}});
  if (Find(*keys, "moe_intermediate_size") == nullptr) {
    CopyKeys(keys, {{"intermediate_size", "moe_intermediate_size"}});
  }
  int64_t inner = 0, num_shared = 0;
  RETURN_IF_ERROR(ReadSize(*keys, "intermediate_size", kMaxDim, -1, &inner));
  RETURN_IF_ERROR(ReadSize(*keys, "num_shared_expert", kMaxLayers, 1, &num_shared));
  (*keys)["shared_expert_intermediate_size"] = static_cast<uint64_t>(inner * num_shared);
  return OkStatus();
}

// Layers after the first num_dense_layers have experts.
Status SpellLfm2Moe(Json* keys) {
  CopyKeys(keys, {{"norm_eps", "rms_norm_eps"},
                  {"tie_embedding", "tie_word_embeddings"},
                  {"num_experts", "n_routed_experts"},
                  {"num_dense_layers", "first_k_dense_replace"}});
  return ReadAttentionList(keys);
}

// intermediate_size is that of an expert; 0 for the shared one: there is none.
Status SpellGraniteMoe(Json* keys) {
  CopyKeys(keys, {{"intermediate_size", "moe_intermediate_size"}});
  const Json* shared = Find(*keys, "shared_intermediate_size");
  if (shared != nullptr && *shared != 0) {
    CopyKeys(keys, {{"shared_intermediate_size", "shared_expert_intermediate_size"}});
  }
  return OkStatus();
}

// Without experts the shared MLP is the only one. Positions are rotated where
// position_embedding_type says so.
Status SpellGraniteHybrid(Json* keys) {
  const Json* experts = Find(*keys, "num_local_experts");
  const bool is_dense = experts == nullptr || *experts == 0;
  if (is_dense) {
    CopyKeys(keys, {{"shared_intermediate_size", "intermediate_size"}});
    (*keys)["num_local_experts"] = nullptr;
  } else {
    CopyKeys(keys, {{"intermediate_size", "moe_intermediate_size"},
                    {"shared_intermediate_size", "shared_expert_intermediate_size"}});
  }
  std::string positions = "nope";
  int64_t num_layers = 0;
  RETURN_IF_ERROR(ReadString(*keys, "position_embedding_type", &positions));
  RETURN_IF_ERROR(ReadNumLayers(*keys, &num_layers));
  if (positions != "nope" && positions != "rope") {
    return BadValue("position_embedding_type", positions, "nope or rope");
  }
  if (positions == "nope") {
    (*keys)["no_rope_layers"] = Json(static_cast<size_t>(num_layers), Json(0u));
  }
  return OkStatus();
}

// Each layer is one part, by the letters of a pattern or by layers_block_type.
Status SpellNemotronH(Json* keys) {
  CopyKeys(keys, {{"layers_block_type", "layer_types"}, {"mlp_hidden_act", "hidden_act"}});
  if (Find(*keys, "head_dim") == nullptr) CopyKeys(keys, {{"attention_head_dim", "head_dim"}});
  if (Find(*keys, "layer_norm_epsilon") == nullptr) {
    CopyKeys(keys, {{"norm_eps", "layer_norm_epsilon"}});
  }
  CountLayers(keys);
  RETURN_IF_ERROR(ReadPattern(keys));
  const Json* types = Find(*keys, "layer_types");
  if (types == nullptr) return InvalidArgumentError("hybrid_override_pattern is missing");
  const bool has_experts = std::find(types->begin(), types->end(), "moe") != types->end();
  if (!has_experts) {
    for (const char* key : {"n_routed_experts", "n_shared_experts"}) (*keys)[key] = nullptr;
  }
  return OkStatus();
}

// The multipliers of its MLP are in a list.
Status SpellFalconH1(Json* keys) {
  CopyKeys(keys, {{"lm_head_multiplier", "logit_scale"}});
  std::vector<double> of_mlp = {1, 1};
  RETURN_IF_ERROR(ReadPositives(*keys, "mlp_multipliers", &of_mlp));
  if (of_mlp.size() != 2) {
    return BadValue("mlp_multipliers", (*keys)["mlp_multipliers"], "2 numbers above 0");
  }
  (*keys)["mlp_gate_multiplier"] = of_mlp[0];
  (*keys)["mlp_out_multiplier"] = of_mlp[1];
  return OkStatus();
}

// Transformers 5.24 lists the heads of the layers without a window in place of global_head_dim and
// num_global_key_value_heads; what they have as the others is left out.
Status SpellGemma4(Json* keys) {
  const Json* layers = Find(*keys, "per_layer_config");
  if (layers == nullptr) return OkStatus();
  const Json* types = Find(*keys, "layer_types");
  if (types == nullptr || !types->is_array()) return InvalidArgumentError("layer_types is missing");
  const Json heads = layers->is_object() && !layers->empty() ? layers->front() : Json::object();
  Json expected = Json::object();
  for (size_t i = 0; i < types->size() && !heads.empty(); ++i) {
    const bool is_global = (*types)[i] == "full_attention" || i + 1 == types->size();
    if (is_global) expected[std::to_string(i)] = heads;
  }
  bool shares_values = false;
  RETURN_IF_ERROR(ReadBool(*keys, "attention_k_eq_v", &shares_values));
  const size_t num_known = heads.count("head_dim") + (shares_values ? heads.count(kKvHeads) : 0);
  if (*layers != expected || !heads.is_object() || num_known != heads.size()) {
    return BadValue("per_layer_config", *layers,
                    "head_dim, and with attention_k_eq_v num_key_value_heads, the same for each "
                    "layer of full_attention");
  }
  (*keys)["global_head_dim"] = heads.value("head_dim", (*keys)["head_dim"]);
  (*keys)["num_global_key_value_heads"] = heads.value(kKvHeads, (*keys)[kKvHeads]);
  return OkStatus();
}

// Attention and experts, each in every n-th layer. Where layers are known, as in GGUF files, they
// are not counted.
Status SpellJamba(Json* keys) {
  CopyKeys(keys, {{"intermediate_size", "moe_intermediate_size"}});
  if (Find(*keys, "mlp_only_layers") != nullptr) return OkStatus();
  int64_t num_layers = 0;
  Period attention = {.period = 8, .offset = 4}, experts = {.period = 2, .offset = 1};
  RETURN_IF_ERROR(ReadNumLayers(*keys, &num_layers));
  RETURN_IF_ERROR(ReadPeriod(*keys, "attn_layer_period", "attn_layer_offset", &attention));
  RETURN_IF_ERROR(ReadPeriod(*keys, "expert_layer_period", "expert_layer_offset", &experts));
  const Json* num_experts = Find(*keys, "num_experts");
  const bool is_dense = num_experts != nullptr && *num_experts == 1;
  Json types = Json::array(), dense = Json::array();
  for (int64_t i = 0; i < num_layers; ++i) {
    types.push_back(attention.Has(i) ? "attention" : "mamba");
    if (is_dense || !experts.Has(i)) dense.push_back(static_cast<uint64_t>(i));
  }
  (*keys)["layer_types"] = std::move(types);
  (*keys)["mlp_only_layers"] = std::move(dense);
  return OkStatus();
}

}  // namespace tandem
