#include "frontend/openai/chat_request.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/shorten.h"
#include "frontend/openai/message_content.h"
#include "frontend/openai/python_json.h"

namespace tandem {
namespace {

Status CheckToolCalls(const std::string& where, const Json& calls) {
  if (!calls.is_array()) return WrongType(where, "a list", calls);
  for (const Json& call : calls) {
    const Json* function = call.is_object() ? Find(call, "function") : nullptr;
    const Json* name = function && function->is_object() ? Find(*function, "name") : nullptr;
    if (name == nullptr || !name->is_string()) {
      return InvalidArgumentError(where + "must be a list of functions with a name");
    }
    const Json* arguments = Find(*function, "arguments");
    if (arguments && !arguments->is_string() && !arguments->is_object()) {
      return WrongType(where + "arguments ", "a string", *arguments);
    }
  }
  return OkStatus();
}

Status CheckRole(const std::string& where, const Json& role) {
  for (const char* known : {"system", "developer", "user", "assistant", "tool", "function"}) {
    if (role == known) return OkStatus();
  }
  return InvalidArgumentError(
      where + "role must be system, developer, user, assistant, tool or function, got " +
      DumpJson(Shorten(role.get_ref<const std::string&>())));
}

Status CheckMessage(size_t i, const Json& message) {
  const std::string where = "message " + std::to_string(i) + " ";
  if (!message.is_object()) return WrongType(where, "an object", message);
  const Json* role = Find(message, "role");
  if (role == nullptr || !role->is_string())
    return InvalidArgumentError(where + "must have a role");
  RETURN_IF_ERROR(CheckRole(where, *role));
  if (const Json* content = Find(message, "content")) {
    if (content->is_array()) {
      for (const Json& part : *content) {
        RETURN_IF_ERROR(CheckContentPart("message " + std::to_string(i) + " content part ", part));
      }
    } else if (!content->is_string()) {
      return WrongType(where + "content ", "a string or a list of parts", *content);
    }
  }
  if (const Json* calls = Find(message, "tool_calls")) {
    RETURN_IF_ERROR(CheckToolCalls(where + "tool_calls ", *calls));
  }
  for (const char* key : {"name", "tool_call_id", "reasoning", "reasoning_content"}) {
    const Json* value = Find(message, key);
    if (value && !value->is_string()) return WrongType(where + key + " ", "a string", *value);
  }
  return OkStatus();
}

Status CheckReasoningEffort(const std::optional<std::string>& effort) {
  if (!effort) return OkStatus();
  for (const char* known : {"none", "minimal", "low", "medium", "high", "xhigh", "max"}) {
    if (*effort == known) return OkStatus();
  }
  return InvalidArgumentError(
             "reasoning_effort must be none, minimal, low, medium, high, xhigh or max")
      .WithParam("body.reasoning_effort");
}

// Templates go through a call's arguments, so the text of an object becomes that object. What is no
// object, as the arguments of a call that was cut off, is an empty one: it stays in the
// conversation, which could not go on else. Keys that the model has written twice and numbers that
// are no JSON read as in Python. Templates test only whether tool_calls is present, so an empty
// list is removed.
void SetToolCallsForm(Json* message) {
  const auto calls = message->find("tool_calls");
  if (calls == message->end()) return;
  if (calls->empty()) {
    message->erase("tool_calls");
    return;
  }
  for (Json& call : *calls) {
    Json& arguments = call["function"]["arguments"];
    if (arguments.is_object()) continue;
    Json object = Json::object();
    if (arguments.is_string()) {
      auto parsed = ParsePythonJson(arguments.get_ref<const std::string&>());
      if (parsed.ok() && (*parsed)->is_object()) object = std::move(parsed->mutable_value());
    }
    arguments = std::move(object);
  }
}

// Clients send a response's message back with null for what it did not have; templates ask only
// whether a key is there.
void EraseNulls(Json* message) {
  for (auto it = message->begin(); it != message->end();) {
    it = it->is_null() && it.key() != "content" ? message->erase(it) : std::next(it);
  }
}

// place: "body.tools.0", for the error.
Status CheckTool(const std::string& place, const Json& tool) {
  if (!tool.is_object()) return WrongType("", "an object", tool).WithParam(place);
  const auto type = tool.find("type");
  if (type != tool.end() && *type != "function") {
    return InvalidArgumentError("must be \"function\"").WithParam(place + ".type");
  }
  const auto function = tool.find("function");
  if (function == tool.end()) {
    return InvalidArgumentError("is required").WithParam(place + ".function");
  }
  if (!function->is_object()) {
    return WrongType("", "an object", *function).WithParam(place + ".function");
  }
  const auto name = function->find("name");
  if (name == function->end()) {
    return InvalidArgumentError("is required").WithParam(place + ".function.name");
  }
  if (!name->is_string() || name->get_ref<const std::string&>().empty()) {
    return InvalidArgumentError("must be a string that is not empty")
        .WithParam(place + ".function.name");
  }
  const Json* description = Find(*function, "description");
  if (description != nullptr && !description->is_string()) {
    return WrongType("", "a string", *description).WithParam(place + ".function.description");
  }
  const Json* parameters = Find(*function, "parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return WrongType("", "an object", *parameters).WithParam(place + ".function.parameters");
  }
  const Json* deferred = Find(tool, "defer_loading");
  if (deferred != nullptr && !deferred->is_boolean()) {
    return WrongType("", "a boolean", *deferred).WithParam(place + ".defer_loading");
  }
  return OkStatus();
}

}  // namespace

Status ParseMessages(Json& value, ChatRequest* out) {
  if (!value.is_array()) return WrongType("", "a list", value);
  if (value.empty())
    return InvalidArgumentError("messages must not be empty").WithParam("messages");
  for (size_t i = 0; i < value.size(); ++i) RETURN_IF_ERROR(CheckMessage(i, value[i]));
  out->messages = JsonDocument(std::move(value));
  // The field's older name; templates read the newer one.
  for (Json& message : out->messages.mutable_value()) {
    out->has_image_detail |= TakeImages(&message, &out->images);
    const auto old = message.find("reasoning_content");
    if (old == message.end()) continue;
    if (Find(message, "reasoning") == nullptr) message["reasoning"] = *old;
    message.erase("reasoning_content");
  }
  return OkStatus();
}

Status ParseTools(Json& value, ChatRequest* out) {
  if (!value.is_array()) return WrongType("", "a list", value);
  if (value.empty()) {
    return InvalidArgumentError(
               "`tools` must not be an empty array. Either provide at least one tool or omit the "
               "field entirely.")
        .WithParam("tools");
  }
  for (size_t i = 0; i < value.size(); ++i) {
    RETURN_IF_ERROR(CheckTool("body.tools." + std::to_string(i), value[i]));
    // Templates look for it in the function.
    const Json* deferred = Find(value[i], "defer_loading");
    if (deferred != nullptr && Find(value[i]["function"], "defer_loading") == nullptr) {
      value[i]["function"]["defer_loading"] = *deferred;
    }
  }
  out->tools = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseToolChoice(Json& value, ChatRequest* out) {
  out->tool_choice = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseChatTemplateKwargs(Json& value, ChatRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  // As in vLLM, where the variables may name the template too.
  if (const auto source = value.find("chat_template"); source != value.end()) {
    if (!source->is_string()) return WrongType(".chat_template", "a string", *source);
    out->chat_template = source->get<std::string>();
    value.erase("chat_template");
  }
  if (value.contains("messages")) {
    return InvalidArgumentError("must not have messages, which have a field of their own");
  }
  out->chat_template_kwargs = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseDocuments(Json& value, ChatRequest* out) {
  if (!value.is_array()) return WrongType("", "a list of objects", value);
  for (const Json& document : value) {
    if (!document.is_object()) return WrongType("", "a list of objects", document);
  }
  out->documents = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseProcessorKwargs(Json& value, ChatRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  out->mm_processor_kwargs = JsonDocument(std::move(value));
  return OkStatus();
}

namespace {

constexpr char kToolChoiceUsage[] =
    "Correct usage: `{\"type\": \"function\", \"function\": {\"name\": \"my_function\"}}`";

// A named choice is the name of one of the tools.
Status CheckNamedTool(const Json& choice, const Json& tools) {
  const Json* function = Find(choice, "function");
  if (function == nullptr || !function->is_object()) {
    return InvalidArgumentError("Invalid value for `function`: `" +
                                (function == nullptr ? "None" : Shorten(DumpJson(*function))) +
                                "` in `tool_choice`! " + kToolChoiceUsage)
        .WithParam("tool_choice.function");
  }
  const Json* name = Find(*function, "name");
  if (name == nullptr) {
    return InvalidArgumentError(
               std::string("Expected field `name` in `function` in `tool_choice`! ") +
               kToolChoiceUsage)
        .WithParam("tool_choice.function.name");
  }
  if (!name->is_string() || name->get_ref<const std::string&>().empty()) {
    return InvalidArgumentError("Invalid `name` in `function`: `" +
                                (name->is_string() ? "" : Shorten(DumpJson(*name))) +
                                "` in `tool_choice`! " + kToolChoiceUsage)
        .WithParam("tool_choice.function.name");
  }
  for (const Json& tool : tools) {
    if (tool["function"]["name"] == *name) return OkStatus();
  }
  return InvalidArgumentError(
             "The tool specified in `tool_choice` does not match any of the specified `tools`")
      .WithParam("tool_choice");
}

Status CheckToolChoice(const ChatRequest& request) {
  if (request.tool_choice.is_null() || *request.tool_choice == "none") return OkStatus();
  const Json& choice = *request.tool_choice;
  if (request.tools.is_null()) {
    return InvalidArgumentError("When using `tool_choice`, `tools` must be set.")
        .WithParam("tool_choice");
  }
  if (choice.is_object()) return CheckNamedTool(choice, *request.tools);
  if (choice == "auto" || choice == "required") return OkStatus();
  return InvalidArgumentError(
             "Invalid value for `tool_choice`: " +
             Shorten(choice.is_string() ? choice.get<std::string>() : DumpJson(choice)) +
             "! Only named tools, \"none\", \"auto\" or \"required\" are supported.")
      .WithParam("tool_choice");
}

}  // namespace

Status CheckChatRequest(const ChatRequest& request) {
  if (request.top_logprobs != 0 && !request.logprobs) {
    return InvalidArgumentError("top_logprobs needs logprobs to be true").WithParam("top_logprobs");
  }
  if (!request.logprob_token_ids.empty() && !request.logprobs) {
    return InvalidArgumentError("logprob_token_ids needs logprobs to be true")
        .WithParam("logprob_token_ids");
  }
  if (request.continue_final_message && request.add_generation_prompt.value_or(false)) {
    return InvalidArgumentError(
               "continue_final_message and add_generation_prompt must not both be true")
        .WithParam("continue_final_message");
  }
  const bool is_named = !request.tool_choice.is_null() && request.tool_choice->is_object();
  if (is_named && request.structured_outputs) {
    return InvalidArgumentError(
        "You can only either use constraints for structured outputs or tools, not both.");
  }
  RETURN_IF_ERROR(CheckReasoningEffort(request.reasoning_effort));
  return CheckToolChoice(request);
}

JsonDocument MessagesForTemplate(JsonDocument messages, bool content_as_parts,
                                 std::string_view image_text) {
  for (Json& message : messages.mutable_value()) {
    EraseNulls(&message);
    SetContentForm(content_as_parts, image_text, &message);
    SetToolCallsForm(&message);
  }
  return messages;
}

JsonDocument TemplateVariables(const ChatRequest& request, const JsonDocument& defaults) {
  Json variables = defaults.is_null() ? Json::object() : *defaults;
  const Json own =
      request.chat_template_kwargs.is_null() ? Json::object() : *request.chat_template_kwargs;
  for (const auto& [name, value] : own.items()) {
    if (!value.is_null() && value != "auto") variables[name] = value;
  }
  if (request.reasoning_effort) {
    variables["reasoning_effort"] = *request.reasoning_effort;
    if (!own.contains("enable_thinking")) {
      variables["enable_thinking"] = *request.reasoning_effort != "none";
    }
  }
  if (!request.documents.is_null()) variables.erase("documents");
  for (const char* field : {"add_generation_prompt", "continue_final_message"}) {
    variables.erase(field);
  }
  return JsonDocument(std::move(variables));
}

std::string EchoedText(const ChatRequest& request, std::string_view response_role) {
  const Json& last = request.messages->back();
  const auto content = last.find("content");
  if (last.at("role") != response_role || content == last.end()) return {};
  Json message = last;
  SetContentForm(false, {}, &message);
  return message["content"].is_string() ? message["content"].get<std::string>() : std::string();
}

}  // namespace tandem
