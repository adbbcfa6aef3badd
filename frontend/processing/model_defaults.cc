#include "frontend/processing/model_defaults.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "common/fields.h"
#include "common/json_text.h"
#include "common/read_file.h"
#include "frontend/openai/generation_request.h"
#include "frontend/openai/json.h"
#include "gguf/end_tokens.h"
#include "gguf/gguf_file.h"

namespace tandem {
namespace {

constexpr int64_t kMaxConfigBytes = 100'000'000;  // as the engine core

StatusOr<Json> ParseObject(std::string_view file, std::string_view text) {
  if (text.empty()) return Json::object();
  auto parsed = ParseJson(WithoutInfinities(text));
  if (!parsed.ok()) return parsed.status().WithContext(file);
  if (!(*parsed)->is_object()) return InvalidArgumentError("not an object").WithContext(file);
  return std::move(parsed->mutable_value());
}

template <class T>
Status ReadNumber(const Json& config, const char* key, Range range, std::optional<T>* out) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return OkStatus();
  if (!it->is_number() || !range.Contains(it->get<double>())) {
    return InvalidArgumentError("generation_config: " + std::string(key) + " must be " +
                                range.Describe() + ", got " + DumpJson(*it));
  }
  *out = it->get<T>();
  return OkStatus();
}

// Without those that no model has; the engine core warns of them.
Status ReadEosIds(const Json& config, std::vector<TokenId>* out) {
  const auto it = config.find("eos_token_id");
  if (it == config.end() || it->is_null()) return OkStatus();
  const Json ids = it->is_array() ? *it : Json::array({*it});
  for (const Json& id : ids) {
    if (!id.is_number_integer()) {
      return InvalidArgumentError("eos_token_id must be a token id or a list, got " + DumpJson(id));
    }
    if (id >= 0 && id <= kMaxTokenId) out->push_back(id.get<TokenId>());
  }
  return OkStatus();
}

// What a GGUF file has of config.json's keys that are read here.
StatusOr<std::string> GgufConfigJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  const auto end_tokens = GgufEndTokens(file->metadata());
  if (!end_tokens.ok()) return end_tokens.status().WithContext(path);
  Json config = {{"eos_token_id", *end_tokens}};
  if (const GgufTensor* const embedding = file->Find("token_embd.weight")) {
    config["vocab_size"] = embedding->shape[0];
  }
  return DumpJson(config);
}

}  // namespace

StatusOr<ModelDefaults> ParseModelDefaults(std::string_view config_json,
                                           std::string_view generation_config_json,
                                           std::string_view override_json,
                                           std::string_view hf_overrides) {
  ASSIGN_OR_RETURN(Json config, ParseObject("config.json", config_json));
  ASSIGN_OR_RETURN(const Json config_changes, ParseObject("--hf-overrides", hf_overrides));
  config.update(config_changes, /*merge_objects=*/true);
  ASSIGN_OR_RETURN(Json generation, ParseObject("generation_config.json", generation_config_json));
  ASSIGN_OR_RETURN(const Json override_values,
                   ParseObject("--override-generation-config", override_json));
  generation.update(override_values);

  ModelDefaults result;
  SamplingDefaults& sampling = result.sampling;
  RETURN_IF_ERROR(ReadNumber(generation, "temperature", {0, 2}, &sampling.temperature));
  RETURN_IF_ERROR(ReadNumber(generation, "top_p", {0, 1, true}, &sampling.top_p));
  RETURN_IF_ERROR(ReadNumber(generation, "top_k", {-1, kMaxTokenId}, &sampling.top_k));
  RETURN_IF_ERROR(ReadNumber(generation, "min_p", {0, 1}, &sampling.min_p));
  RETURN_IF_ERROR(
      ReadNumber(generation, "repetition_penalty", {0, 1e6, true}, &sampling.repetition_penalty));
  RETURN_IF_ERROR(ReadNumber(generation, "max_new_tokens", {1, kMaxTokenId}, &sampling.max_tokens));
  RETURN_IF_ERROR(
      ReadNumber(override_values, "max_new_tokens", {1, kMaxTokenId}, &result.max_tokens_cap));
  RETURN_IF_ERROR(ReadEosIds(generation, &result.eos_ids));
  const auto model_type = config.find("model_type");
  if (model_type != config.end() && model_type->is_string()) {
    result.model_type = model_type->get<std::string>();
  }
  // Models of several parts keep the language model's values one level down.
  const auto text_config = config.find("text_config");
  const Json& model =
      text_config != config.end() && text_config->is_object() ? *text_config : config;
  if (result.eos_ids.empty()) RETURN_IF_ERROR(ReadEosIds(model, &result.eos_ids));
  std::optional<int64_t> vocab_size;
  RETURN_IF_ERROR(ReadNumber(model, "vocab_size", {1, kMaxTokenId}, &vocab_size));
  result.vocab_size = static_cast<TokenId>(vocab_size.value_or(0));
  if (result.vocab_size > 0) {
    std::erase_if(result.eos_ids, [&](TokenId id) { return id >= result.vocab_size; });
  }
  return result;
}

StatusOr<ModelDefaults> LoadModelDefaults(const std::string& model_folder,
                                          std::string_view generation_config,
                                          std::string_view override_json,
                                          std::string_view hf_overrides) {
  ASSIGN_OR_RETURN(const std::string gguf, FindGgufFile(model_folder));
  const bool none = generation_config == "vllm";
  const std::string folder =
      generation_config == "auto" || none ? model_folder : std::string(generation_config);
  std::string config, generation;
  if (gguf.empty()) {
    ASSIGN_OR_RETURN(config, ReadFileIfAny(model_folder + "/config.json", kMaxConfigBytes));
  } else {
    ASSIGN_OR_RETURN(config, GgufConfigJson(gguf));
  }
  if (gguf.empty() || folder != model_folder) {
    ASSIGN_OR_RETURN(generation,
                     ReadFileIfAny(folder + "/generation_config.json", kMaxConfigBytes));
  }
  if (folder != model_folder && generation.empty()) {
    return NotFoundError("--generation-config " + folder + " holds no generation_config.json");
  }
  auto defaults = ParseModelDefaults(config, generation, override_json, hf_overrides);
  if (!defaults.ok() || !none) return defaults;
  // Only the operator's sampling values, but all end tokens.
  ASSIGN_OR_RETURN(const ModelDefaults own, ParseModelDefaults("", "", override_json));
  defaults->sampling = own.sampling;
  return defaults;
}

}  // namespace tandem
