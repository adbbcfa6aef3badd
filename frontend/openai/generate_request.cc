#include "frontend/openai/generate_request.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/shorten.h"

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
      return InvalidArgumentError("must have chat_template_kwargs alone, not " + Shorten(name));
    }
    if (!kwargs.is_object()) return WrongType("", "an object of objects", kwargs);
    out->template_kwargs = JsonDocument(kwargs);
  }
  return OkStatus();
}

Status ParsePromptLogprobTokenIds(Json& value, GenerateRequest* out) {
  if (!value.is_array() || value.empty()) return WrongType("", "a list of lists", value);
  std::vector<std::vector<int64_t>> rows;
  for (const Json& row : value) {
    if (!row.is_array()) return WrongType("", "a list of lists", value);
    std::vector<int64_t>& ids = rows.emplace_back();
    for (const Json& id : row) {
      const bool is_id = id.is_number_unsigned() ? id.get<uint64_t>() <= uint64_t{kMaxTokenId}
                                                 : id.is_number_integer() && id == -1;
      if (!is_id) return WrongType("", "lists of token ids, or -1 for none", id);
      ids.push_back(id.get<int64_t>());
    }
  }
  out->prompt_logprob_token_ids = std::move(rows);
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
