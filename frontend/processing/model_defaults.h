#pragma once

// What a model folder says about generating: generation_config.json and the few words of
// config.json that a frontend needs. Read once at start. Thread: any, pure.
// Failure: a file that is there but malformed or has values out of range is INVALID_ARGUMENT
// naming the file; a missing generation_config.json gives no defaults.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"

namespace tandem {

// Sampling values for requests that are silent; an empty one leaves OpenAI's default.
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
  std::vector<TokenId> eos_ids;           // all that generation_config (else config) names
  TokenId vocab_size = 0;                 // rows of the output matrix; 0: config.json has none
};

// generation_config: "auto" reads the model's file, "vllm" takes no sampling defaults from it,
// anything else is the folder to read it from. override_json: an object laid over it, may be empty.
StatusOr<ModelDefaults> LoadModelDefaults(const std::string& model_folder,
                                          std::string_view generation_config = "auto",
                                          std::string_view override_json = "");
// The same from the files' contents; empty for a missing file.
StatusOr<ModelDefaults> ParseModelDefaults(std::string_view config_json,
                                           std::string_view generation_config_json,
                                           std::string_view override_json);

}  // namespace tandem
