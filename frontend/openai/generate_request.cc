#include "frontend/openai/generate_request.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace tandem {

Status ParseTokenIds(Json& value, GenerateRequest* out) {
  const bool is_list = value.is_array() && (value.empty() || value[0].is_number());
  if (!is_list || !ParsePrompt(value, out).ok()) {
    return InvalidArgumentError("must be a list of token ids");
  }
  return OkStatus();
}

Status ParseSamplingParams(Json& value, GenerateRequest* out) {
  if (!value.is_object()) return InvalidArgumentError("must be an object");
  out->sampling_params = JsonDocument(std::move(value));
  return OkStatus();
}

}  // namespace tandem
