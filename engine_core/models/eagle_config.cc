#include "engine_core/models/eagle_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "common/read_file.h"
#include "engine_core/weights/json_fields.h"
#include "engine_core/weights/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 2> kEagleNames = {"LlamaForCausalLM",
                                                         "EagleLlamaForCausalLM"};
constexpr std::array<std::string_view, 3> kEagle3Names = {
    "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM"};

// A head's layer is llama's.
StatusOr<ConfigRules> RulesOf(std::span<const std::string_view> names,
                              std::string_view architecture) {
  if (std::ranges::find(names, architecture) != names.end()) return ConfigRules();
  std::string known;
  for (const std::string_view name : names) {
    (known += known.empty() ? "" : ", ") += name;
  }
  return InvalidArgumentError("architecture " + std::string(architecture) +
                              " is not that of a head, must be one of " + known);
}

StatusOr<ConfigRules> RulesOfEagle(std::string_view architecture) {
  return RulesOf(kEagleNames, architecture);
}

StatusOr<ConfigRules> RulesOfEagle3(std::string_view architecture) {
  return RulesOf(kEagle3Names, architecture);
}

Status CheckEqual(const char* key, int64_t value, int64_t expected, const char* whose) {
  if (value == expected) return OkStatus();
  return InvalidArgumentError(std::string(key) + " is " + std::to_string(value) + ", must be " +
                              std::to_string(expected) + whose);
}

Status SetStateLayers(const Json& json, const ModelConfig& target, EagleConfig* config) {
  constexpr const char* kKey = "eagle_aux_hidden_state_layer_ids";
  const Json* nested = Find(json, "eagle_config");
  const Json* layers = Find(json, kKey);
  if (nested != nullptr) {
    if (!nested->is_object()) return BadValue("eagle_config", *nested, "an object");
    if (layers == nullptr) layers = Find(*nested, kKey);
    bool uses_states = true;
    RETURN_IF_ERROR(ReadBool(*nested, "use_aux_hidden_state", &uses_states));
    if (!uses_states) return InvalidArgumentError("use_aux_hidden_state is false, must be true");
  }
  const auto num_layers = static_cast<int>(target.num_layers);
  if (layers == nullptr) {
    config->state_layers = {2, num_layers / 2, num_layers - 3};
    if (num_layers >= 5) return OkStatus();
    return InvalidArgumentError(std::string(kKey) + " is missing, and the target has only " +
                                std::to_string(num_layers) + " layers");
  }
  const std::string allowed = "a list of 1 to " + std::to_string(kMostStateLayers) +
                              " numbers from 0 to " + std::to_string(num_layers);
  if (!layers->is_array() || layers->empty() || layers->size() > kMostStateLayers) {
    return BadValue(kKey, *layers, allowed);
  }
  for (const Json& layer : *layers) {
    if (!layer.is_number_integer() || layer < 0 || layer > num_layers) {
      return BadValue(kKey, *layers, allowed);
    }
    config->state_layers.push_back(layer.get<int>());
  }
  return OkStatus();
}

Status SetEagle3(const Json& json, const ModelConfig& target, EagleConfig* config) {
  RETURN_IF_ERROR(ReadSize(json, "draft_vocab_size", target.vocab_size, target.vocab_size,
                           &config->draft_vocab_size));
  int64_t target_size = 0;
  RETURN_IF_ERROR(
      ReadSize(json, "target_hidden_size", int64_t{1} << 20, target.hidden_size, &target_size));
  RETURN_IF_ERROR(
      CheckEqual("target_hidden_size", target_size, target.hidden_size, ", the target's"));
  RETURN_IF_ERROR(ReadBool(json, "norm_before_residual", &config->norm_before_residual));
  RETURN_IF_ERROR(ReadBool(json, "norm_output", &config->norm_output));
  return SetStateLayers(json, target, config);
}

StatusOr<EagleConfig> Parse(const std::string& text, EagleVersion version,
                            const ModelConfig& target) {
  const bool is_eagle3 = version == EagleVersion::kEagle3;
  EagleConfig config = {.version = version, .layer = {}, .state_layers = {}};
  ASSIGN_OR_RETURN(config.layer,
                   ParseModelConfig(text, "", is_eagle3 ? RulesOfEagle3 : RulesOfEagle));
  const ModelConfig& layer = config.layer;
  RETURN_IF_ERROR(CheckEqual("num_hidden_layers", layer.num_layers, 1, ", a head has one layer"));
  RETURN_IF_ERROR(
      CheckEqual("hidden_size", layer.hidden_size, target.hidden_size, ", the target's"));
  RETURN_IF_ERROR(CheckEqual("vocab_size", layer.vocab_size, target.vocab_size, ", the target's"));
  ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  config.draft_vocab_size = target.vocab_size;
  if (is_eagle3) RETURN_IF_ERROR(SetEagle3(json, target, &config));
  return config;
}

}  // namespace

StatusOr<EagleConfig> ParseEagleConfig(const std::string& text, EagleVersion version,
                                       const ModelConfig& target) {
  StatusOr<EagleConfig> config = Parse(text, version, target);
  if (!config.ok()) return config.status().WithContext("config.json");
  return config;
}

StatusOr<EagleConfig> ReadEagleConfig(const std::string& folder, EagleVersion version,
                                      const ModelConfig& target) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(folder + "/config.json", kMaxJsonFileBytes));
  StatusOr<EagleConfig> config = ParseEagleConfig(text, version, target);
  if (!config.ok()) return config.status().WithContext(folder);
  return config;
}

}  // namespace tandem
