#include "frontend/openai/generate_request.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace tandem {
namespace {

constexpr std::array<std::string_view, 3> kModes = {"tokens", "text", "derender"};

}  // namespace

std::string_view OutputModeName(GenerateRequest::OutputMode mode) {
  return kModes[static_cast<size_t>(mode)];
}

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

Status ParseOutputMode(Json& value, GenerateRequest* out) {
  for (size_t i = 0; i < kModes.size(); ++i) {
    if (value != kModes[i]) continue;
    out->output_mode = static_cast<GenerateRequest::OutputMode>(i);
    return OkStatus();
  }
  return InvalidArgumentError("must be tokens, text or derender");
}

Status ParseParseContext(Json& value, GenerateRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  out->parse_context = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseReasoningParserKwargs(Json& value, GenerateRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  for (const auto& [name, kwargs] : value.items()) {
    if (name != "chat_template_kwargs") {
      return InvalidArgumentError("must have chat_template_kwargs alone, not " + name);
    }
    if (!kwargs.is_object()) return WrongType("", "an object of objects", kwargs);
    out->template_kwargs = JsonDocument(kwargs);
  }
  return OkStatus();
}

Status ParseExtraArgs(Json& value, GenerateRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  Json& all = out->vllm_xargs.mutable_value();
  if (all.is_null()) all = Json::object();
  all.update(value);
  return OkStatus();
}

}  // namespace tandem
