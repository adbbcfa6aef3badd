#include "engine_core/weights/kv_cache_scheme.h"

#include <nlohmann/json.hpp>

#include "common/read_file.h"
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

}  // namespace

StatusOr<KvCacheScheme> ReadKvCacheScheme(const std::string& model_dir,
                                          std::string_view hf_overrides) {
  const std::string path = model_dir + "/config.json";
  ASSIGN_OR_RETURN(const std::string text, ReadFileIfAny(path, kMaxJsonFileBytes));
  if (text.empty()) return KvCacheScheme();
  StatusOr<Json> json = ParseJsonObject(text);
  if (!json.ok()) return json.status().WithContext(path);
  if (!hf_overrides.empty()) {
    const StatusOr<Json> changes = ParseJsonObject(hf_overrides);
    if (!changes.ok()) return changes.status().WithContext("--hf-overrides");
    json->update(*changes, /*merge_objects=*/true);
  }
  const Json* scheme = FindScheme(*json);
  return scheme == nullptr ? KvCacheScheme() : SchemeOf(*scheme);
}

}  // namespace tandem
