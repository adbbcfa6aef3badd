#pragma once

// A model folder's defaults for generation: generation_config.json and the few keys of config.json
// that a frontend needs; of a GGUF file what stands for these keys. Read once at start. Thread:
// any, pure. Failure: a malformed file, or a value out of range, is INVALID_ARGUMENT with the
// file's name; a missing generation_config.json gives no defaults.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"

namespace tandem {

// Sampling values for requests that do not set them; empty: OpenAI's default.
struct SamplingDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_tokens;  // max_new_tokens
};

struct ModelDefaults {
  SamplingDefaults sampling;
  std::optional<int64_t> max_tokens_cap;  // max_new_tokens of the operator's override
  std::vector<TokenId> eos_ids;           // all of generation_config.json, else of config.json
  std::string model_type;                 // of config.json; may be empty
  TokenId vocab_size = 0;                 // rows of the output matrix; 0: not in config.json
};

// generation_config: "auto" reads the model's file, "vllm" takes no sampling defaults from it, any
// other value is the folder to read it from. override_json: an object whose keys win, hf_overrides:
// one whose keys replace those of config.json; both may be empty.
StatusOr<ModelDefaults> LoadModelDefaults(const std::string& model_folder,
                                          std::string_view generation_config = "auto",
                                          std::string_view override_json = "",
                                          std::string_view hf_overrides = "");
// The same from the contents of the files; empty: a missing file.
StatusOr<ModelDefaults> ParseModelDefaults(std::string_view config_json,
                                           std::string_view generation_config_json,
                                           std::string_view override_json,
                                           std::string_view hf_overrides = "");

}  // namespace tandem
