#include "frontend/openai/generative_scoring_request.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/openai/parse_fields.h"
#include "frontend/openai/refuse.h"

namespace tandem {
namespace {

// A prompt of a completion has the same forms.
StatusOr<Prompts> ReadPrompts(Json value, const char* must_be) {
  CompletionRequest completion;
  if (!ParsePrompt(value, &completion).ok()) return InvalidArgumentError(must_be);
  return std::move(completion.prompt);
}

Status CheckLabels(const GenerativeScoringRequest& request) {
  const size_t num_labels = request.label_token_ids.size();
  if (num_labels > 0 && num_labels <= kMaxLogprobTokenIds) return OkStatus();
  return RefuseByName("label_token_ids", "label_token_ids must have 1 to " +
                                             std::to_string(kMaxLogprobTokenIds) + " ids, got " +
                                             std::to_string(num_labels));
}

}  // namespace

Status ParseScoredQuery(Json& value, GenerativeScoringRequest* out) {
  constexpr const char* kMustBe = "must be a string or a list of token ids";
  if (!value.is_string() && !(value.is_array() && (value.empty() || value[0].is_number()))) {
    return InvalidArgumentError(kMustBe);
  }
  if (value.is_array() && value.empty()) {
    out->query = TokenPrompts(1);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(out->query, ReadPrompts(std::move(value), kMustBe));
  return OkStatus();
}

Status ParseScoredItems(Json& value, GenerativeScoringRequest* out) {
  constexpr const char* kMustBe = "must be a list of strings or of lists of token ids";
  if (!value.is_array() || (!value.empty() && value[0].is_number())) {
    return InvalidArgumentError(kMustBe);
  }
  if (value.empty()) return RefuseByName("items", "items must contain at least one item.");
  ASSIGN_OR_RETURN(out->items, ReadPrompts(std::move(value), kMustBe));
  return OkStatus();
}

StatusOr<GenerativeScoringRequest> ParseGenerativeScoringRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  GenerativeScoringRequest request;
  BodyErrors errors;
  for (const char* name : {"query", "items", "label_token_ids"}) {
    if (IsAbsent(body, name)) errors.AddForm("body." + std::string(name), "is required");
  }
  ParseFields<GenerativeScoringRequest>(body, kGenerativeScoringFields, &request, &errors);
  LogUnknownFields(body, kGenerativeScoringFields);
  RETURN_IF_ERROR(errors.Result());
  RETURN_IF_ERROR(CheckLabels(request));
  RETURN_IF_ERROR(CheckGenerationRequest(request));
  return request;
}

}  // namespace tandem
