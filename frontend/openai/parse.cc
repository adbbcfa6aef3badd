#include "frontend/openai/parse.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "frontend/openai/chat_request.h"
#include "frontend/openai/completion_request.h"
#include "frontend/openai/generate_request.h"
#include "frontend/openai/lax_values.h"
#include "frontend/openai/parse_fields.h"
#include "frontend/openai/refuse.h"
#include "frontend/openai/responses_request.h"
#include "frontend/openai/tokenize_request.h"

namespace tandem {

// ---- Reading values ----

namespace {

// A text becomes what it was read as, if anything.
template <class T>
void Become(std::optional<T> read, Json* value) {
  if (read) *value = *read;
}

}  // namespace

Complaint ReadValue(Json& value, bool* out) {
  if (value.is_string()) Become(BooleanOfText(value.get_ref<const std::string&>()), &value);
  if (value.is_number() && (value == 0 || value == 1)) value = value == 1;
  if (!value.is_boolean()) return "must be a boolean";
  *out = value.get<bool>();
  return {};
}

Complaint ReadValue(Json& value, int64_t* out) {
  if (value.is_string()) Become(IntegerOfText(value.get_ref<const std::string&>()), &value);
  if (value.is_boolean()) value = value.get<bool>() ? 1 : 0;
  if (value.is_number_unsigned()) {
    if (value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return "must fit in 64 bits";
    *out = value.get<int64_t>();
    return {};
  }
  if (value.is_number_integer()) {
    *out = value.get<int64_t>();
    return {};
  }
  if (!value.is_number_float()) return "must be an integer";
  // 5.0 is an integer to JSON; 2^63 and above are not representable.
  const double number = value.get<double>();
  if (number != std::floor(number)) return "must be an integer";
  if (std::abs(number) >= 9.2e18) return "must fit in 64 bits";
  *out = static_cast<int64_t>(number);
  return {};
}

Complaint ReadValue(Json& value, double* out) {
  if (value.is_string()) Become(NumberOfText(value.get_ref<const std::string&>()), &value);
  if (value.is_boolean()) value = value.get<bool>() ? 1 : 0;
  if (!value.is_number()) return "must be a number";
  *out = value.get<double>();
  return {};
}

Complaint ReadValue(Json& value, std::string* out) {
  if (!value.is_string()) return "must be a string";
  *out = value.get_ref<const std::string&>();
  return {};
}

namespace {

// The first part of the value that is outside the range, or null.
const Json* FindOutside(const Json& value, const Range& range) {
  if (value.is_number()) return range.Contains(value.get<double>()) ? nullptr : &value;
  if (value.is_string()) {
    const auto num_bytes = static_cast<double>(value.get_ref<const std::string&>().size());
    return range.Contains(num_bytes) ? nullptr : &value;
  }
  if (value.is_array()) {
    for (const Json& item : value) {
      if (const Json* outside = FindOutside(item, range)) return outside;
    }
  }
  return nullptr;
}

}  // namespace

Status CheckRange(std::string_view field, const Range& range, const Json& value) {
  const Json* outside = FindOutside(value, range);
  if (outside == nullptr) return OkStatus();
  if (*outside == "") return ValueError(field, "must not be empty", *outside);
  if (outside->is_string()) {
    return ValueError(field, "must have a number of bytes " + range.Describe(), *outside);
  }
  return ValueError(field, "must be " + range.Describe(), *outside);
}

// ---- Bodies and their errors ----

bool IsAbsent(const Json& body, std::string_view name) {
  const auto it = body.find(name);
  return it == body.end() || it->is_null();
}

Status NotAnObject(const Json& body) {
  BodyErrors errors;
  errors.AddForm("body", "must be an object, got " + std::string(JsonTypeName(body)));
  return errors.Result();
}

void BodyErrors::AddForm(std::string_view location, std::string_view message) {
  if (num_form_errors_++ == 0) first_location_ = location;
  if (num_form_errors_ > kMaxShown) return;
  list_.append("\n  ").append(location).append(": ").append(message);
}

void BodyErrors::AddValue(Status status) {
  if (value_error_.ok()) value_error_ = std::move(status);
}

Status BodyErrors::Result() const {
  if (num_form_errors_ == 0) return value_error_;
  return InvalidArgumentError(std::to_string(num_form_errors_) + " validation error" +
                              (num_form_errors_ > 1 ? "s:" : ":") + list_)
      .WithParam(first_location_);
}

StatusOr<JsonDocument> ParseJsonBody(std::string_view body, const JsonLimits& limits) {
  auto json = ParseJson(body, limits);
  if (json.ok()) return json;
  BodyErrors errors;
  errors.AddForm("body", json.status().message());
  return errors.Result();
}

std::string_view JsonTypeName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    default:
      return "an unknown value";
  }
}

const Json* Find(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Status WrongType(std::string_view where, std::string_view must_be, const Json& value) {
  return InvalidArgumentError(std::string(where) + "must be " + std::string(must_be) + ", got " +
                              std::string(JsonTypeName(value)));
}

Status ValueError(std::string_view field, std::string_view must_be, const Json& value) {
  constexpr size_t kMaxShownBytes = 64;
  std::string shown = DumpJson(value);
  if (shown.size() > kMaxShownBytes) shown = std::string(JsonTypeName(value));
  std::string message(field);
  message.append(" ").append(must_be).append(", got ").append(shown);
  message.append(" (parameter=").append(field).append(", value=").append(shown).append(")");
  return InvalidArgumentError(std::move(message)).WithParam(std::string(field));
}

StatusOr<CompletionRequest> ParseCompletionRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  CompletionRequest request;
  BodyErrors errors;
  ParseFields<GenerationRequest>(body, kGenerationFields, &request, &errors);
  ParseFields<CompletionRequest>(body, kCompletionFields, &request, &errors);
  LogUnknownFields(body, kGenerationFields, kCompletionFields);
  RETURN_IF_ERROR(errors.Result());
  RETURN_IF_ERROR(CheckGenerationRequest(request));
  RETURN_IF_ERROR(CheckCompletionRequest(request));
  return request;
}

StatusOr<ChatRequest> ParseChatRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  ChatRequest request;
  BodyErrors errors;
  const bool has_messages = !IsAbsent(body, "messages");
  ParseFields<GenerationRequest>(body, kGenerationFields, &request, &errors);
  ParseFields<ChatRequest>(body, kChatFields, &request, &errors);
  LogUnknownFields(body, kGenerationFields, kChatFields);
  if (!has_messages) errors.AddForm("body.messages", "is required");
  RETURN_IF_ERROR(errors.Result());
  RETURN_IF_ERROR(CheckGenerationRequest(request));
  RETURN_IF_ERROR(CheckChatRequest(request));
  return request;
}

namespace {

// Fields without effect that a response repeats.
constexpr const char* kEchoedFields[] = {"metadata",
                                         "user",
                                         "service_tier",
                                         "safety_identifier",
                                         "prompt_cache_key",
                                         "prompt_cache_options",
                                         "prompt_cache_retention",
                                         "max_tool_calls"};

}  // namespace

StatusOr<ResponsesRequest> ParseResponsesRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  ResponsesRequest request;
  BodyErrors errors;
  const bool has_input = !IsAbsent(body, "input");
  for (const RetiredField& field : kNotOfResponses) {
    if (!IsAbsent(body, field.name)) request.retired_fields.push_back(field);
    body.erase(std::string(field.name));
  }
  Json& echoed = request.echoed.mutable_value() = Json::object();
  for (const char* name : kEchoedFields) {
    if (!IsAbsent(body, name)) echoed[name] = body[name];
  }
  ParseFields<GenerationRequest>(body, kGenerationFields, &request, &errors);
  ParseFields<ResponsesRequest>(body, kResponsesFields, &request, &errors);
  LogUnknownFields(body, kGenerationFields, kResponsesFields);
  if (!has_input) errors.AddForm("body.input", "is required");
  RETURN_IF_ERROR(errors.Result());
  RETURN_IF_ERROR(CheckGenerationRequest(request));
  RETURN_IF_ERROR(CheckResponsesRequest(request));
  return request;
}

StatusOr<std::vector<ChatRequest>> ParseChatBatch(Json body, int64_t max_copied_bytes) {
  if (!body.is_object()) return NotAnObject(body);
  BodyErrors errors;
  Json conversations = IsAbsent(body, "messages") ? Json(nullptr) : std::move(body["messages"]);
  if (!conversations.is_array() || conversations.empty() || !conversations[0].is_array()) {
    errors.AddForm("body.messages", "must be a list of conversations");
    return errors.Result();
  }
  constexpr std::pair<const char*, bool> kRefused[] = {
      // and whether false turns it off
      {"tools", false},         {"stream", true},           {"use_beam_search", true},
      {"early_stopping", true}, {"prompt_logprobs", false}, {"return_prompt_text", true}};
  for (const auto& [name, is_flag] : kRefused) {
    if (IsAbsent(body, name) || (is_flag && body[name] == false)) continue;
    return InvalidArgumentError("a batch of conversations does not take `" + std::string(name) +
                                "`")
        .WithParam(name);
  }
  if (!IsAbsent(body, "kv_transfer_params") && body["kv_transfer_params"].is_object() &&
      !IsAbsent(body["kv_transfer_params"], "prompt_token_ids")) {
    return RefuseByName("kv_transfer_params.prompt_token_ids",
                        "one tokenized prompt cannot serve several conversations");
  }
  if (!IsAbsent(body, "n") && body["n"] != 1) {
    return InvalidArgumentError("a batch of conversations has one choice for each; n must be 1")
        .WithParam("n");
  }
  body["messages"] = nullptr;
  // Every conversation gets a copy of the other fields.
  const auto num_copies = static_cast<int64_t>(conversations.size());
  if (static_cast<int64_t>(DumpJson(body).size()) > max_copied_bytes / num_copies) {
    return InvalidArgumentError("the fields of " + std::to_string(num_copies) +
                                " conversations together are too large")
        .WithParam("messages");
  }
  std::vector<ChatRequest> requests;
  for (Json& conversation : conversations) {
    Json single = body;
    single["messages"] = std::move(conversation);
    ASSIGN_OR_RETURN(ChatRequest request, ParseChatRequest(std::move(single)));
    requests.push_back(std::move(request));
  }
  return requests;
}

namespace {

Status CheckOutputMode(const GenerateRequest& request) {
  using OutputMode = GenerateRequest::OutputMode;
  if (request.output_mode == OutputMode::kDerender && request.stream) {
    return RefuseByName("output_mode",
                        "output_mode derender is not available with stream: stream tokens and "
                        "derender each event");
  }
  if (request.detokenize) return OkStatus();
  if (request.output_mode != OutputMode::kTokens) {
    return RefuseByName("output_mode", "output_mode " +
                                           std::string(OutputModeName(request.output_mode)) +
                                           " needs sampling_params.detokenize to be true");
  }
  if (!request.stop.empty()) {
    return RefuseByName("stop", "stop strings need sampling_params.detokenize to be true");
  }
  return OkStatus();
}

Status CheckPromptScores(const GenerateRequest& request) {
  constexpr const char* kField = "prompt_logprob_token_ids";
  if (!request.prompt_logprob_token_ids) {
    if (!request.prompt_logprob_start) return OkStatus();
    return RefuseByName("prompt_logprob_start",
                        "prompt_logprob_start has no effect without prompt_logprob_token_ids");
  }
  if (request.stream) {
    return RefuseByName(kField, "prompt_logprob_token_ids are not available with stream");
  }
  if (!request.use_beam_search) return OkStatus();
  return RefuseByName(kField, "prompt_logprob_token_ids are not available with use_beam_search");
}

// Outputs that are given are not chosen by anything else.
Status CheckGivenOutputs(const GenerateRequest& request) {
  constexpr const char* kField = "trace_decode_token_ids";
  if (!request.trace_decode_token_ids) return OkStatus();
  if (request.trace_decode_token_ids->empty()) {
    return RefuseByName(kField, "trace_decode_token_ids is empty: it must hold the outputs");
  }
  const bool is_structured =
      request.structured_outputs || request.response_format || request.guided;
  const std::pair<bool, const char*> others[] = {
      {request.n != 1, "n above 1"},
      {request.prompt_logprobs.has_value(), "prompt_logprobs"},
      {request.prompt_logprob_token_ids.has_value(), "prompt_logprob_token_ids"},
      {is_structured, "structured outputs"},
      {request.repetition_detection.has_value(), "repetition_detection"},
      {request.thinking_token_budget.has_value(), "thinking_token_budget"},
      {!request.bad_words.empty(), "bad_words"},
      {request.use_beam_search, "use_beam_search"}};
  for (const auto& [is_there, name] : others) {
    if (!is_there) continue;
    return RefuseByName(kField,
                        std::string("trace_decode_token_ids cannot be combined with ") + name);
  }
  return OkStatus();
}

}  // namespace

StatusOr<GenerateRequest> ParseGenerateRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  GenerateRequest request;
  request.fills_room = true;
  BodyErrors errors;
  for (const char* name : {"token_ids", "sampling_params"}) {
    if (IsAbsent(body, name)) errors.AddForm("body." + std::string(name), "is required");
  }
  ParseFields<GenerateRequest>(body, kGenerateFields, &request, &errors);
  // Of a completion's fields these stand beside sampling_params, all others in it.
  Json fields = request.sampling_params.is_null()
                    ? Json::object()
                    : std::move(request.sampling_params.mutable_value());
  for (const char* name : {"prompt", "echo"}) fields.erase(name);
  for (const char* name : kBesideSamplingParams) {
    fields[name] = body.value(name, Json(nullptr));
    body.erase(name);
  }
  LogUnknownFields(body, kGenerateFields);
  ParseFields<GenerationRequest>(fields, kGenerationFields, &request, &errors);
  ParseFields<CompletionRequest>(fields, kCompletionFields, &request, &errors);
  ParseFields<GenerateRequest>(fields, kSamplingParamsFields, &request, &errors);
  LogUnknownFields(fields, kGenerationFields, kCompletionFields, kSamplingParamsFields);
  RETURN_IF_ERROR(errors.Result());
  RETURN_IF_ERROR(CheckGenerationRequest(request));
  RETURN_IF_ERROR(CheckCompletionRequest(request));
  RETURN_IF_ERROR(CheckOutputMode(request));
  RETURN_IF_ERROR(CheckPromptScores(request));
  RETURN_IF_ERROR(CheckGivenOutputs(request));
  // Tokens are named by their ids where no text is asked for.
  if (request.output_mode == GenerateRequest::OutputMode::kTokens) {
    request.return_tokens_as_token_ids = true;
  }
  if (!request.parse_context.is_null()) {
    const Json* const tools = Find(*request.parse_context, "tools");
    request.constraint_has_calls = tools != nullptr && tools->is_array() && !tools->empty();
  }
  return request;
}

StatusOr<TokenizeBody> ParseTokenizeRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  TokenizeBody result;
  BodyErrors errors;
  ParseFields<TokenizeRequest>(body, kTokenizeFields, &result.request, &errors);
  RETURN_IF_ERROR(errors.Result());
  if (!IsAbsent(body, "messages")) {
    ASSIGN_OR_RETURN(result.chat, ParseChatRequest(std::move(body)));
  } else if (!result.request.prompt) {
    errors.AddForm("body.prompt", "is required (or messages)");
    return errors.Result();
  } else {
    LogUnknownFields(body, kTokenizeFields);
  }
  return result;
}

StatusOr<DetokenizeRequest> ParseDetokenizeRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  DetokenizeRequest request;
  BodyErrors errors;
  ParseFields<DetokenizeRequest>(body, kDetokenizeFields, &request, &errors);
  LogUnknownFields(body, kDetokenizeFields);
  if (IsAbsent(body, "tokens")) errors.AddForm("body.tokens", "is required");
  RETURN_IF_ERROR(errors.Result());
  return request;
}

}  // namespace tandem
