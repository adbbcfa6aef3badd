#include "engine_core/adapters/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/json_text.h"
#include "common/shorten.h"
#include "engine_core/weights/json_file.h"

namespace tandem {
namespace {

// Patterns are tried in the order of the file.
using Json = nlohmann::ordered_json;

constexpr size_t kMaxPatterns = 1 << 16;
constexpr size_t kMaxExpressions = 1000;  // each is tried for each module

std::string Shown(const Json& value) {
  return Shorten(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Status Refused(std::string_view key, const Json& value, std::string_view why) {
  return InvalidArgumentError(std::string(key) + " is " + Shown(value) + ": " + std::string(why));
}

// Null where the key is absent or null.
const Json* FindKey(const Json& json, std::string_view key) {
  const auto entry = json.find(key);
  return entry == json.end() || entry->is_null() ? nullptr : &*entry;
}

// Absent, null, false and what is empty all mean that a feature is not used.
bool IsOff(const Json* value) {
  if (value == nullptr) return true;
  if (value->is_boolean()) return !value->get<bool>();
  return (value->is_object() || value->is_array() || value->is_string()) && value->empty();
}

Status CheckFeatures(const Json& json) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kNotBuilt = {{
      {"use_dora", "DoRA is not supported"},
      {"lora_bias", "a bias of lora_B is not supported"},
      {"alora_invocation_tokens", "Activated LoRA (aLoRA) is not supported"},
      {"layer_replication", "replicated layers are not supported"},
      {"use_bdlora", "block-diagonal LoRA (BD-LoRA) is not supported"},
      {"use_qalora", "QA-LoRA is not supported"},
      {"arrow_config", "Arrow, a router between adapters, is not supported"},
      {"kasa_config", "KaSA, which truncates the base model's weights, is not supported"},
      {"monteclora_config", "MonteCLoRA is not supported"},
  }};
  for (const auto& [key, why] : kNotBuilt) {
    if (const Json* value = FindKey(json, key); !IsOff(value)) return Refused(key, *value, why);
  }
  if (const Json* type = FindKey(json, "peft_type"); type != nullptr && *type != "LORA") {
    return Refused("peft_type", *type, "only LORA is supported");
  }
  if (const Json* bias = FindKey(json, "bias"); bias != nullptr && *bias != "none") {
    return Refused("bias", *bias, "biases of an adapter are not supported, must be none");
  }
  const Json* modules = FindKey(json, "modules_to_save");
  if (modules != nullptr && !IsOff(modules)) {
    const bool is_head = modules->is_array() && std::ranges::all_of(*modules, [](const Json& name) {
                           return name == "classifier" || name == "score";
                         });
    if (!is_head) {
      return Refused("modules_to_save", *modules,
                     "modules that were trained as a whole are not supported; merge them into the "
                     "model");
    }
  }
  return OkStatus();
}

// Only initial values that leave the base model as it is make an adapter of it.
Status CheckInit(const Json& json) {
  const Json* init = FindKey(json, "init_lora_weights");
  if (init == nullptr || init->is_boolean()) return OkStatus();
  constexpr std::string_view kFine[] = {"gaussian", "eva", "orthogonal", "mica", "lora_ga"};
  if (init->is_string() && std::ranges::count(kFine, init->get_ref<const std::string&>()) > 0) {
    return OkStatus();
  }
  return Refused("init_lora_weights", *init,
                 "initial values such as PiSSA, OLoRA, CorDA and LoftQ change the base model's "
                 "weights; convert it to a plain LoRA adapter with PEFT's "
                 "path_initial_model_for_weight_conversion");
}

// LoRA-GA takes the first values of its pairs out of the base model's weights. vLLM serves such an
// adapter, and PEFT writes another value when it converts one to a plain adapter.
std::string InitWarning(const Json& json) {
  const Json* init = FindKey(json, "init_lora_weights");
  if (init == nullptr || *init != "lora_ga") return "";
  return "init_lora_weights is lora_ga: the adapter was trained beside changed weights of the base "
         "model and is right over these alone; PEFT's path_initial_model_for_weight_conversion "
         "makes a plain LoRA adapter of it";
}

Status CheckRank(const std::string& key, const Json& value, int64_t max_rank) {
  if (!value.is_number_integer() || value < 1) {
    return Refused(key, value, "a LoRA rank must be a positive integer");
  }
  if (value > max_rank) {
    return InvalidArgumentError("LoRA rank " + Shown(value) + " (" + key +
                                ") is greater than max_lora_rank " + std::to_string(max_rank));
  }
  return OkStatus();
}

Status CheckAlpha(const std::string& key, const Json& value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  if (value.is_number() && std::abs(value.get<double>()) <= kMost) return OkStatus();
  return Refused(key, value, "must be a finite float32 number");
}

template <class T>
StatusOr<T> FirstMatch(const std::vector<std::pair<ModulePattern, T>>& patterns,
                       std::string_view module, T otherwise) {
  for (const auto& [pattern, value] : patterns) {
    ASSIGN_OR_RETURN(const bool is_match, pattern.Matches(module));
    if (is_match) return value;
  }
  return otherwise;
}

template <class T, class Check>
Status ReadPatterns(const Json& json, const std::string& key, Check check,
                    std::vector<std::pair<ModulePattern, T>>* patterns) {
  const Json* value = FindKey(json, key);
  if (value == nullptr) return OkStatus();
  if (!value->is_object() || value->size() > kMaxPatterns) {
    return Refused(key, *value, "must be an object of names and numbers");
  }
  size_t num_expressions = 0;
  for (const auto& [text, number] : value->items()) {
    RETURN_IF_ERROR(check(key + "." + text, number));
    StatusOr<ModulePattern> pattern = ModulePattern::Parse(text);
    if (!pattern.ok()) return pattern.status().WithContext(key);
    num_expressions += pattern->is_expression() ? 1 : 0;
    if (num_expressions > kMaxExpressions) {
      return InvalidArgumentError(key + " has more than " + std::to_string(kMaxExpressions) +
                                  " regular expressions");
    }
    patterns->emplace_back(*std::move(pattern), number.template get<T>());
  }
  return OkStatus();
}

}  // namespace

StatusOr<AdapterConfig> AdapterConfig::Parse(std::string_view text, int64_t max_rank) {
  // Checked by the stricter parser first, which bounds the depth.
  RETURN_IF_ERROR(ParseJsonObject(text).status());
  const Json json = Json::parse(WithoutInfinities(text), nullptr, /*allow_exceptions=*/false);
  for (const char* key : {"r", "lora_alpha", "target_modules"}) {
    // Null where PEFT was to adapt parameters alone; which ones it did is in the tensors.
    const bool may_be_null = std::string_view(key) == "target_modules";
    if (FindKey(json, key) == nullptr && !(may_be_null && json.contains(key))) {
      return InvalidArgumentError("Missing required configuration fields: {'" + std::string(key) +
                                  "'}");
    }
  }
  RETURN_IF_ERROR(CheckFeatures(json));
  RETURN_IF_ERROR(CheckInit(json));
  RETURN_IF_ERROR(CheckRank("r", json["r"], max_rank));
  RETURN_IF_ERROR(CheckAlpha("lora_alpha", json["lora_alpha"]));
  AdapterConfig config;
  config.warning_ = InitWarning(json);
  config.rank_ = json["r"].get<int64_t>();
  config.alpha_ = json["lora_alpha"].get<double>();
  if (const Json* root = FindKey(json, "use_rslora")) {
    if (!root->is_boolean()) return Refused("use_rslora", *root, "must be true or false");
    config.has_root_scale_ = root->get<bool>();
  }
  const auto check_rank = [max_rank](const std::string& key, const Json& value) {
    return CheckRank(key, value, max_rank);
  };
  RETURN_IF_ERROR(ReadPatterns(json, "rank_pattern", check_rank, &config.ranks_));
  RETURN_IF_ERROR(ReadPatterns(json, "alpha_pattern", CheckAlpha, &config.alphas_));
  return config;
}

StatusOr<AdapterScaling> AdapterConfig::ScalingOf(std::string_view module) const {
  ASSIGN_OR_RETURN(const int64_t rank, FirstMatch(ranks_, module, rank_));
  ASSIGN_OR_RETURN(const double alpha, FirstMatch(alphas_, module, alpha_));
  const auto divisor = static_cast<double>(rank);
  const double scale = alpha / (has_root_scale_ ? std::sqrt(divisor) : divisor);
  return AdapterScaling{.rank = rank, .scale = static_cast<float>(scale)};
}

}  // namespace tandem
