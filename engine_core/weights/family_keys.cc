#include "engine_core/weights/family_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "engine_core/weights/json_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

// From no_rope_layers, which has a 1 for each layer that rotates, else from the interval.
Status ReadRopeLayers(const Json& json, ModelConfig* config) {
  const auto num_layers = static_cast<size_t>(config->num_layers);
  const Json* list = Find(json, "no_rope_layers");
  if (list != nullptr && !list->empty()) {
    const auto is_flag = [](const Json& value) { return value == 0 || value == 1; };
    if (!list->is_array() || list->size() != num_layers ||
        !std::all_of(list->begin(), list->end(), is_flag)) {
      return BadValue("no_rope_layers", *list, "a 0 or 1 for each layer");
    }
    for (const Json& rotates : *list) config->rope_layers.push_back(rotates == 1);
    return OkStatus();
  }
  int64_t interval = 0;
  RETURN_IF_ERROR(ReadSize(json, "no_rope_layer_interval", kMaxLayers, 0, &interval));
  for (int64_t i = 0; interval > 0 && i < config->num_layers; ++i) {
    config->rope_layers.push_back((i + 1) % interval != 0);
  }
  return OkStatus();
}

Status ReadMultipliers(const Json& json, ModelConfig* config) {
  for (const auto& [key, value] :
       {std::pair{"embedding_multiplier", &config->embedding_multiplier},
        std::pair{"residual_multiplier", &config->residual_multiplier},
        std::pair{"logits_scaling", &config->logits_scaling},
        std::pair{"attention_multiplier", &config->attention_multiplier},
        std::pair{"logit_scale", &config->logit_scale},
        std::pair{"swiglu_limit", &config->swiglu_limit},
        std::pair{"attention_in_multiplier", &config->attention_in_multiplier},
        std::pair{"attention_out_multiplier", &config->attention_out_multiplier},
        std::pair{"key_multiplier", &config->key_multiplier},
        std::pair{"mlp_gate_multiplier", &config->mlp_gate_multiplier},
        std::pair{"mlp_out_multiplier", &config->mlp_out_multiplier}}) {
    RETURN_IF_ERROR(ReadPositive(json, key, value));
  }
  return OkStatus();
}

// Llama 4's.
Status ReadChunks(const Json& json, ModelConfig* config) {
  RETURN_IF_ERROR(
      ReadSize(json, "attention_chunk_size", kMaxPositions - 1, 0, &config->attention_chunk_size));
  RETURN_IF_ERROR(ReadPositive(json, "attn_scale", &config->attn_scale));
  return ReadPositive(json, "floor_scale", &config->floor_scale);
}

Status ReadFlags(const Json& json, ModelConfig* config) {
  for (const auto& [key, flag] :
       {std::pair{"tie_word_embeddings", &config->tie_word_embeddings},
        std::pair{"attention_bias", &config->attention_bias},
        std::pair{"attention_out_bias", &config->attention_out_bias},
        std::pair{"lm_head_bias", &config->lm_head_bias},
        std::pair{"use_qk_norm", &config->use_qk_norm},
        std::pair{"use_parallel_residual", &config->use_parallel_residual},
        std::pair{"mlp_bias", &config->mlp_bias}}) {
    RETURN_IF_ERROR(ReadBool(json, key, flag));
  }
  return OkStatus();
}

// Models that take more than text, of which the text model is built, and their text model: by its
// model_type where the one class has several.
struct TextModelRow {
  std::string_view architecture;
  std::string_view model_type;  // of text_config; empty: any
  std::string_view text;
  std::string_view defaults = "{}";  // where they differ from the text model's own class
};
constexpr std::string_view kQwen2VlDefaults = R"({"rope_theta": 1000000, "rms_norm_eps": 1e-5})";
constexpr TextModelRow kTextModels[] = {
    {"Cohere2VisionForConditionalGeneration", "", "Cohere2ForCausalLM"},
    {"Gemma3ForConditionalGeneration", "", "Gemma3ForCausalLM"},
    {"Gemma4ForConditionalGeneration", "", "Gemma4ForCausalLM"},
    {"Glm4vForConditionalGeneration", "", "Glm4ForCausalLM"},
    {"Glm4vMoeForConditionalGeneration", "", "Glm4MoeForCausalLM"},
    {"KimiK25ForConditionalGeneration", "", "DeepseekV3ForCausalLM"},
    {"Lfm2VlForConditionalGeneration", "", "Lfm2ForCausalLM"},
    {"Llama4ForConditionalGeneration", "", "Llama4ForCausalLM"},
    {"Mistral3ForConditionalGeneration", "ministral3", "Ministral3ForCausalLM"},
    {"Mistral3ForConditionalGeneration", "mistral", "MistralForCausalLM"},
    // Positions of text alone are the usual ones.
    {"Qwen2VLForConditionalGeneration", "", "Qwen2ForCausalLM", kQwen2VlDefaults},
    {"Qwen2_5_VLForConditionalGeneration", "", "Qwen2ForCausalLM", kQwen2VlDefaults},
    {"Qwen3VLForConditionalGeneration", "", "Qwen3ForCausalLM", R"({"rope_theta": 500000})"},
};

}  // namespace

Status ReadFamilyKeys(const Json& json, const ConfigRules& rules, ModelConfig* config) {
  RETURN_IF_ERROR(ReadFlags(json, config));
  RETURN_IF_ERROR(ReadMultipliers(json, config));
  if (rules.has_chunks) RETURN_IF_ERROR(ReadChunks(json, config));
  return ReadRopeLayers(json, config);
}

void TakeTextModel(Json* json, ModelConfig* config) {
  for (const TextModelRow& row : kTextModels) {
    if (row.architecture != config->architecture) continue;
    if (!row.model_type.empty() && row.model_type != config->model_type) continue;
    config->architecture = row.text;
    Json keys = Json::parse(row.defaults);
    keys.update(*json);
    *json = std::move(keys);
    return;
  }
}

}  // namespace tandem
