#include "engine_core/weights/kv_cache_scheme.h"

#include <nlohmann/json.hpp>

#include "common/read_file.h"
#include "common/strings.h"
#include "engine_core/weights/json_fields.h"
#include "engine_core/weights/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// The scheme in one of the places where tools write it; null: none.
const Json* FindScheme(const Json& json) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const Json* quantization = Find(json, key);
    if (quantization == nullptr || !quantization->is_object()) continue;
    return Find(*quantization, "kv_cache_scheme");
  }
  const Json* text = Find(json, "text_config");
  return text != nullptr && text->is_object() ? FindScheme(*text) : nullptr;
}

KvCacheScheme SchemeOf(const Json& json) {
  const auto is = [&](const char* key, const Json& wanted) {
    const Json* value = json.is_object() ? Find(json, key) : nullptr;
    return value != nullptr && *value == wanted;
  };
  KvCacheScheme scheme;
  if (!is("type", "float") || !is("num_bits", 8) || is("symmetric", false)) {
    scheme.unsupported = "only 8 bits of type float are supported";
  } else if (Find(json, "strategy") != nullptr && !is("strategy", "tensor")) {
    scheme.unsupported = "only a scale for the tensor is supported";
  }
  scheme.is_float8 = scheme.unsupported.empty();
  return scheme;
}

// ModelOpt's word for it, in the object or in its "quantization"; null: none.
const Json* FindAlgorithm(const Json& quantization) {
  const Json* nested = Find(quantization, "quantization");
  return Find(nested != nullptr && nested->is_object() ? *nested : quantization,
              "kv_cache_quant_algo");
}

KvCacheScheme SchemeOfAlgorithm(const Json& algorithm) {
  const std::string word = algorithm.is_string() ? ToLower(algorithm.get<std::string>()) : "";
  if (word == "fp8" || word == "fp8_e4m3") return {.is_float8 = true, .unsupported = ""};
  return {.unsupported = "kv_cache_quant_algo is " + algorithm.dump() + ", only FP8 is supported"};
}

StatusOr<Json> ReadObject(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFileIfAny(path, kMaxJsonFileBytes));
  if (text.empty()) return Json::object();
  StatusOr<Json> json = ParseJsonObject(text);
  if (!json.ok()) return json.status().WithContext(path);
  return json;
}

}  // namespace

StatusOr<KvCacheScheme> ReadKvCacheScheme(const std::string& model_dir,
                                          std::string_view hf_overrides) {
  ASSIGN_OR_RETURN(Json json, ReadObject(model_dir + "/config.json"));
  if (!hf_overrides.empty()) {
    const StatusOr<Json> changes = ParseJsonObject(hf_overrides);
    if (!changes.ok()) return changes.status().WithContext("--hf-overrides");
    json.update(*changes, /*merge_objects=*/true);
  }
  if (const Json* scheme = FindScheme(json)) return SchemeOf(*scheme);
  const Json* quantization = Find(json, "quantization_config");
  if (quantization != nullptr && quantization->is_object()) {
    const Json* algorithm = FindAlgorithm(*quantization);
    return algorithm == nullptr ? KvCacheScheme() : SchemeOfAlgorithm(*algorithm);
  }
  ASSIGN_OR_RETURN(const Json own, ReadObject(model_dir + "/hf_quant_config.json"));
  const Json* algorithm = FindAlgorithm(own);
  return algorithm == nullptr ? KvCacheScheme() : SchemeOfAlgorithm(*algorithm);
}

}  // namespace tandem
