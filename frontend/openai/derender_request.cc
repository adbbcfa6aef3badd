#include "frontend/openai/derender_request.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/openai/parse_fields.h"

namespace tandem {
namespace {

Status Wrong(const char* what) { return InvalidArgumentError(std::string("must ") + what); }

StatusOr<GeneratedTokens::Choice> ReadChoice(const Json& value) {
  if (!value.is_object()) return Wrong("have choices that are objects");
  GeneratedTokens::Choice choice;
  if (const Json* index = Find(value, "index")) {
    if (!index->is_number_unsigned())
      return Wrong("have choices whose index is a number from 0 on");
    choice.index = index->get<int64_t>();
  }
  if (const Json* ids = Find(value, "token_ids")) {
    Json list = *ids;
    if (!ReadValue(list, &choice.token_ids).empty()) {
      return Wrong("have choices whose token_ids are a list of integers");
    }
  }
  if (const Json* reason = Find(value, "finish_reason")) {
    if (!reason->is_string()) return Wrong("have choices whose finish_reason is a string");
    choice.finish_reason = reason->get<std::string>();
  }
  if (const Json* reason = Find(value, "stop_reason")) {
    if (reason->is_number_integer()) choice.stop_reason = reason->get<int64_t>();
    if (reason->is_string()) choice.stop_reason = reason->get<std::string>();
  }
  if (const Json* logprobs = Find(value, "logprobs")) choice.logprobs = JsonDocument(*logprobs);
  return choice;
}

StatusOr<GeneratedTokens> ReadGenerated(const Json& value, bool is_event = false) {
  if (!value.is_object()) return Wrong("be an object");
  GeneratedTokens generated;
  if (const Json* id = Find(value, "request_id")) {
    if (!id->is_string()) return Wrong("have a request_id that is a string");
    generated.request_id = id->get<std::string>();
  }
  // Other modes have decoded already, up to a stop string that their tokens go beyond.
  if (const Json* mode = Find(value, "output_mode"); mode != nullptr && *mode != "tokens") {
    return Wrong("be of the output_mode tokens");
  }
  if (const Json* ids = Find(value, "prompt_token_ids")) {
    Json list = *ids;
    if (!ReadValue(list, &generated.prompt_token_ids).empty()) {
      return Wrong("have prompt_token_ids that are a list of integers");
    }
  }
  const Json* choices = Find(value, "choices");
  if (choices == nullptr || !choices->is_array() || (choices->empty() && !is_event)) {
    return Wrong("have a list of choices");
  }
  for (const Json& each : *choices) {
    ASSIGN_OR_RETURN(GeneratedTokens::Choice choice, ReadChoice(each));
    generated.choices.push_back(std::move(choice));
  }
  if (const Json* logprobs = Find(value, "prompt_logprobs")) {
    generated.prompt_logprobs = JsonDocument(*logprobs);
  }
  if (const Json* params = Find(value, "kv_transfer_params")) {
    generated.kv_transfer_params = JsonDocument(*params);
  }
  return generated;
}

Status TakeObject(Json& value, JsonDocument* out) {
  if (!value.is_object()) return Wrong("be an object");
  *out = JsonDocument(std::move(value));
  return OkStatus();
}

}  // namespace

Status ParseChunk(Json& value, DerenderEvent* out) {
  ASSIGN_OR_RETURN(out->generate_chunk, ReadGenerated(value, /*is_event=*/true));
  if (out->generate_chunk->choices.size() > 1) return Wrong("have at most one choice");
  return OkStatus();
}

Status ParseState(Json& value, DerenderEvent* out) {
  if (!value.is_object()) return Wrong("be an object");
  DerenderState& state = out->stream_state;
  if (const Json* ids = Find(value, "prior_token_ids")) {
    Json list = *ids;
    if (!ReadValue(list, &state.prior_token_ids).empty()) {
      return Wrong("have prior_token_ids that are a list of integers");
    }
  }
  if (const Json* sent = Find(value, "role_sent")) {
    if (!sent->is_boolean()) return Wrong("have a role_sent that is true or false");
    state.role_sent = sent->get<bool>();
  }
  return OkStatus();
}

Status ParseGeneratedTokens(Json& value, DerenderChatRequest* out) {
  ASSIGN_OR_RETURN(out->generate_response, ReadGenerated(value));
  return OkStatus();
}

Status ParseGeneratedList(Json& value, DerenderCompletionRequest* out) {
  if (!value.is_array() || value.empty()) return Wrong("be a list of objects that is not empty");
  for (const Json& each : value) {
    ASSIGN_OR_RETURN(GeneratedTokens generated, ReadGenerated(each));
    out->generate_responses.push_back(std::move(generated));
  }
  return OkStatus();
}

Status ParsePromptTokenIds(Json& value, DerenderCompletionRequest* out) {
  Status wrong = Wrong("be a list of lists of token ids, or one of an event's prompt");
  if (!value.is_array()) return wrong;
  const bool is_one = !value.empty() && value[0].is_number();
  if (is_one) value = Json::array({std::move(value)});
  for (Json& ids : value) {
    std::vector<int64_t>& prompt = out->prompt_token_ids.emplace_back();
    if (!ids.is_null() && !ReadValue(ids, &prompt).empty()) return wrong;
  }
  return OkStatus();
}

Status ParseOriginalChat(Json& value, DerenderChatRequest* out) {
  return TakeObject(value, &out->chat_request);
}

Status ParseOriginalCompletion(Json& value, DerenderCompletionRequest* out) {
  return TakeObject(value, &out->completion_request);
}

StatusOr<DerenderChatRequest> ParseDerenderChatRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  DerenderChatRequest request;
  BodyErrors errors;
  ParseFields<DerenderEvent>(body, kDerenderEventFields, &request, &errors);
  ParseFields<DerenderChatRequest>(body, kDerenderChatFields, &request, &errors);
  LogUnknownFields(body, kDerenderEventFields, kDerenderChatFields);
  const char* const needed = request.stream ? "generate_chunk" : "generate_response";
  if (IsAbsent(body, needed)) errors.AddForm(std::string("body.") + needed, "is required");
  RETURN_IF_ERROR(errors.Result());
  return request;
}

StatusOr<DerenderCompletionRequest> ParseDerenderCompletionRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  DerenderCompletionRequest request;
  BodyErrors errors;
  ParseFields<DerenderEvent>(body, kDerenderEventFields, &request, &errors);
  // Of an event's one prompt it is a number.
  if (request.stream && body.contains("prompt_tokens") && body["prompt_tokens"].is_number()) {
    body["prompt_tokens"] = Json::array({body["prompt_tokens"]});
  }
  ParseFields<DerenderCompletionRequest>(body, kDerenderCompletionFields, &request, &errors);
  LogUnknownFields(body, kDerenderEventFields, kDerenderCompletionFields);
  const char* const needed = request.stream ? "generate_chunk" : "generate_responses";
  if (IsAbsent(body, needed)) errors.AddForm(std::string("body.") + needed, "is required");
  RETURN_IF_ERROR(errors.Result());
  const size_t num_responses = request.stream ? 1 : request.generate_responses.size();
  if (!request.prompt_token_ids.empty() && request.prompt_token_ids.size() != num_responses) {
    return InvalidArgumentError("prompt_token_ids has " +
                                std::to_string(request.prompt_token_ids.size()) +
                                " prompts, generate_responses " + std::to_string(num_responses))
        .WithParam("prompt_token_ids");
  }
  if (!request.prompt_tokens.empty() && request.prompt_tokens.size() != num_responses) {
    return InvalidArgumentError("prompt_tokens has " +
                                std::to_string(request.prompt_tokens.size()) +
                                " numbers, generate_responses " + std::to_string(num_responses))
        .WithParam("prompt_tokens");
  }
  return request;
}

}  // namespace tandem
