#include "engine_core/speculation/speculative_config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFlag = "--speculative-config: ";
constexpr std::string_view kBuilt =
    "built are ngram (also written ngram_gpu), suffix, draft_model, eagle, eagle3, mtp and "
    "medusa";
constexpr int64_t kMaxDrafts = 128;
// An index holds one entry per token and length.
constexpr int32_t kMaxLookup = 64, kMaxLookupLengths = 16;

template <class... Parts>
Status Refused(const Parts&... parts) {
  std::string text(kFlag);
  (text.append(parts), ...);
  return InvalidArgumentError(text);
}

Status WrongValue(const std::string& key, const Json& value, std::string_view allowed) {
  return Refused(key, " is ", value.dump(-1, ' ', true, Json::error_handler_t::replace),
                 ", must be ", allowed);
}

// What the keys say, before they are checked against each other.
struct Keys {
  std::string method, model;
  std::optional<int32_t> num_drafts, lookup_min, lookup_max;
  SpeculativeConfig config;
};

Status SetCount(const std::string& key, const Json& value, int64_t max,
                std::optional<int32_t>* out) {
  if (!value.is_number_integer() || value < 1 || value > max) {
    return WrongValue(key, value, "a whole number from 1 to " + std::to_string(max));
  }
  *out = value.get<int32_t>();
  return OkStatus();
}

Status SetNumber(const std::string& key, const Json& value, double max, double* out) {
  if (!value.is_number() || value < 0 || value > max) {
    return WrongValue(key, value, "a number from 0 to " + std::to_string(static_cast<int>(max)));
  }
  *out = value.get<double>();
  return OkStatus();
}

Status SetSuffix(const std::string& key, const Json& value, SuffixOptions* options) {
  if (key == "suffix_decoding_max_spec_factor") {
    return SetNumber(key, value, 128, &options->max_spec_factor);
  }
  if (key == "suffix_decoding_min_token_prob") {
    return SetNumber(key, value, 1, &options->min_token_prob);
  }
  const bool is_depth = key == "suffix_decoding_max_tree_depth";
  if (!is_depth && key != "suffix_decoding_max_cached_requests") {
    return Refused("no key is called ", key);
  }
  const int64_t least = is_depth ? 1 : 0, most = is_depth ? 128 : 100'000;
  if (!value.is_number_integer() || value < least || value > most) {
    return WrongValue(
        key, value, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  (is_depth ? options->max_tree_depth : options->max_cached_requests) = value.get<int32_t>();
  return OkStatus();
}

Status SetWord(const std::string& key, const Json& value, std::string* out) {
  if (!value.is_string()) return WrongValue(key, value, "a string");
  *out = value.get<std::string>();
  return OkStatus();
}

Status SetFlag(const std::string& key, const Json& value, bool* out) {
  if (!value.is_boolean()) return WrongValue(key, value, "true or false");
  *out = value;
  return OkStatus();
}

Status SetDisabled(const std::string& key, const Json& value, bool* enabled) {
  RETURN_IF_ERROR(SetFlag(key, value, enabled));
  *enabled = !*enabled;
  return OkStatus();
}

// [[first batch, last batch, drafts], …]; batches that no range names take the entry before them.
Status SetByBatch(const std::string& key, const Json& value, SpeculativeConfig* config) {
  constexpr std::string_view kForm = "[[first, last, drafts], …] with ascending batch sizes from 1";
  if (!value.is_array()) return WrongValue(key, value, kForm);
  int64_t last = 0;
  for (const Json& range : value) {
    const bool is_range =
        range.is_array() && range.size() == 3 && std::ranges::all_of(range, [](const Json& number) {
          return number.is_number_integer() && number >= 0 && number < 1 << 20;
        });
    if (!is_range || range[0] <= last || range[1] < range[0]) return WrongValue(key, value, kForm);
    last = range[1];
    config->by_batch.push_back({range[0], range[2]});
  }
  return OkStatus();
}

// Keys of which only the defaults are built, about drafters that have a model and other ways to
// verify.
Status CheckUnused(const std::string& key, const Json& value) {
  if (key == "rejection_sample_method") {
    // Both emit what the model alone would have drawn; so does ours.
    if (value == "standard" || value == "block") return OkStatus();
    return WrongValue(key, value,
                      "\"standard\" or \"block\": nothing that changes outputs is built");
  }
  constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kDefaults = {{
      {"draft_tensor_parallel_size", "1"},
      {"quantization", "null"},
      {"revision", "null"},
      {"code_revision", "null"},
      {"attention_backend", "null"},
      {"kv_cache_dtype", "null"},
      {"moe_backend", "null"},
      {"disable_padded_drafter_batch", "false"},
      {"parallel_drafting", "false"},
      {"use_heterogeneous_vocab", "false"},
      {"synthetic_acceptance_rates", "null"},
      {"synthetic_acceptance_length", "null"},
      {"fly_window_size", "null"},
      {"fly_entropy_threshold", "null"},
  }};
  const auto row = std::ranges::find(kDefaults, key, [](const auto& r) { return r.first; });
  if (key == "tensor_parallel_size") {
    return Refused("no key is called tensor_parallel_size; vLLM's is draft_tensor_parallel_size");
  }
  if (key == "disable_by_batch_size") {
    return Refused(
        "no key is called disable_by_batch_size; [[1, n, drafts], [n + 1, n + 1, 0]] as "
        "num_speculative_tokens_per_batch_size ends drafts above n requests");
  }
  if (row == kDefaults.end()) return Refused("no key is called ", key);
  if (value.is_null() || value.dump() == row->second) return OkStatus();
  return WrongValue(key, value, std::string(row->second) + ", nothing else is built");
}

// Keys whose default is null in vLLM, which null therefore leaves as they are.
bool IsNullByDefault(const std::string& key) {
  constexpr std::array<std::string_view, 8> kKeys = {"method",
                                                     "model",
                                                     "num_speculative_tokens",
                                                     "prompt_lookup_min",
                                                     "prompt_lookup_max",
                                                     "max_model_len",
                                                     "enforce_eager",
                                                     "num_speculative_tokens_per_batch_size"};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

Status SetKey(const std::string& key, const Json& value, Keys* keys) {
  if (value.is_null() && IsNullByDefault(key)) return OkStatus();
  if (key == "method") return SetWord(key, value, &keys->method);
  if (key == "model") return SetWord(key, value, &keys->model);
  if (key == "num_speculative_tokens") return SetCount(key, value, kMaxDrafts, &keys->num_drafts);
  if (key == "prompt_lookup_min") return SetCount(key, value, kMaxLookup, &keys->lookup_min);
  if (key == "prompt_lookup_max") return SetCount(key, value, kMaxLookup, &keys->lookup_max);
  if (key == "num_speculative_tokens_per_batch_size") {
    return SetByBatch(key, value, &keys->config);
  }
  if (key == "draft_sample_method") {
    keys->config.draws_drafts = value == "probabilistic";
    if (keys->config.draws_drafts || value == "greedy") return OkStatus();
    return WrongValue(key, value, "\"greedy\" or \"probabilistic\"");
  }
  if (key == "max_model_len") {
    return SetCount(key, value, std::numeric_limits<int32_t>::max(), &keys->config.max_model_len);
  }
  if (key == "disable_lookahead_block_hashes") {
    return SetDisabled(key, value, &keys->config.hashes_next_token);
  }
  if (key == "disable_eagle_block_drop") {
    return SetDisabled(key, value, &keys->config.drops_last_found_block);
  }
  if (key.starts_with("suffix_decoding_")) return SetSuffix(key, value, &keys->config.suffix);
  if (key == "adaptive") return SetFlag(key, value, &keys->config.adaptive);
  if (key == "enforce_eager") return SetFlag(key, value, &keys->config.enforce_eager);
  return CheckUnused(key, value);
}

// Without "method", the folder's name decides, as in vLLM.
std::string MethodOfName(const std::string& model) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kParts = {
      {{"eagle3", "eagle3"}, {"eagle-", "eagle"}, {"dflash", "dflash"}, {"dspark", "dspark"}}};
  const std::string name = model.substr(model.find_last_of('/') + 1);
  for (const auto& [part, method] : kParts) {
    if (name.find(part) != name.npos) return std::string(method);
  }
  return "draft_model";
}

Status SetMethod(Keys* keys) {
  std::string method = keys->method;
  if (method.empty() && (keys->model == "ngram" || keys->model == "[ngram]")) method = "ngram";
  if (method == "ngram" || method == "ngram_gpu") {
    keys->config.method = DraftMethod::kNgram;
    return OkStatus();
  }
  if (method == "suffix") {
    keys->config.method = DraftMethod::kSuffix;
    return OkStatus();
  }
  if (method.empty()) {
    if (keys->model.empty()) return Refused("method is missing; ", kBuilt);
    method = MethodOfName(keys->model);
  }
  constexpr std::array<std::pair<std::string_view, DraftMethod>, 4> kWithModel = {
      {{"draft_model", DraftMethod::kDraftModel},
       {"eagle", DraftMethod::kEagle},
       {"eagle3", DraftMethod::kEagle3},
       {"medusa", DraftMethod::kMedusa}}};
  // vLLM's spellings with a family's name mean the same.
  if (method == "mtp" || method.ends_with("_mtp")) {
    keys->config.method = DraftMethod::kMtp;
    keys->config.model = keys->model;
    return OkStatus();
  }
  const auto row = std::ranges::find(kWithModel, method, [](const auto& r) { return r.first; });
  if (row == kWithModel.end()) return Refused("method ", method, " is not built; ", kBuilt);
  if (keys->model.empty()) return Refused("method ", method, " needs a model, its folder");
  keys->config.method = row->second;
  keys->config.model = keys->model;
  return OkStatus();
}

Status SetNgram(const Keys& keys, SpeculativeConfig* config) {
  constexpr int32_t kDefault = 5;
  config->prompt_lookup_min = keys.lookup_min.value_or(keys.lookup_max.value_or(kDefault));
  config->prompt_lookup_max = keys.lookup_max.value_or(config->prompt_lookup_min);
  const int32_t num_lengths = config->prompt_lookup_max - config->prompt_lookup_min + 1;
  if (num_lengths >= 1 && num_lengths <= kMaxLookupLengths) return OkStatus();
  return Refused("prompt_lookup_min ", std::to_string(config->prompt_lookup_min),
                 " and prompt_lookup_max ", std::to_string(config->prompt_lookup_max),
                 ": the second must not be less, nor more than ",
                 std::to_string(kMaxLookupLengths - 1), " above");
}

// Whether a key is about drafts of this method.
bool Concerns(const std::string& key, const SpeculativeConfig& config) {
  if (key.starts_with("prompt_lookup_")) return config.method == DraftMethod::kNgram;
  if (key.starts_with("suffix_decoding_")) return config.method == DraftMethod::kSuffix;
  if (key == "max_model_len" || key == "enforce_eager") return config.has_model();
  if (key == "disable_lookahead_block_hashes" || key == "disable_eagle_block_drop") {
    return config.reads_next_token();
  }
  // vLLM names the method there, too.
  if (key == "model") return config.has_model() || config.method == DraftMethod::kNgram;
  return true;
}

}  // namespace

StatusOr<SpeculativeConfig> ParseSpeculativeConfig(const std::string& text) {
  if (text.empty()) return SpeculativeConfig();
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Refused("not a JSON object");
  Keys keys;
  for (const auto& [key, value] : json.items()) RETURN_IF_ERROR(SetKey(key, value, &keys));
  RETURN_IF_ERROR(SetMethod(&keys));
  SpeculativeConfig config = keys.config;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_null() && !Concerns(key, config)) config.keys_without_effect.push_back(key);
  }
  if (config.method == DraftMethod::kNgram) RETURN_IF_ERROR(SetNgram(keys, &config));
  if (config.method == DraftMethod::kSuffix && !keys.num_drafts) {
    keys.num_drafts = config.suffix.max_tree_depth;
  }
  // The layers that are published predict one token.
  if (config.method == DraftMethod::kMtp && !keys.num_drafts) keys.num_drafts = 1;
  if (config.draws_drafts && !config.has_model()) {
    return Refused("draft_sample_method probabilistic is for a drafter that has a model");
  }
  if (!keys.num_drafts) return Refused("num_speculative_tokens is missing");
  config.num_speculative_tokens = *keys.num_drafts;
  for (const DraftConfig::FromBatch& from : config.by_batch) {
    if (from.num_drafts <= config.num_speculative_tokens) continue;
    return Refused("num_speculative_tokens_per_batch_size asks for ",
                   std::to_string(from.num_drafts), " drafts, num_speculative_tokens is ",
                   std::to_string(config.num_speculative_tokens));
  }
  return config;
}

}  // namespace tandem
