#include "frontend/openai/responses_input.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/shorten.h"
#include "frontend/openai/refuse.h"

namespace tandem {
namespace {

// The text at the key, or null when it is absent or not a text.
const std::string* FindText(const Json& object, const char* key) {
  const Json* value = Find(object, key);
  return value == nullptr ? nullptr : value->get_ptr<const std::string*>();
}

std::string FunctionName(const std::string& name_space, const std::string& name) {
  return name_space.empty() ? name : name_space + "__" + name;
}

// ---- Items → messages ----

// The text of a part; null: it has none.
const std::string* TextOfPart(const Json& part) {
  if (!part.is_object()) return part.get_ptr<const std::string*>();
  const std::string* text = FindText(part, "text");
  return text != nullptr ? text : FindText(part, "refusal");
}

// What a model wrote, a text or parts, one after the other; as in chats a part whose text is null
// is left out. INVALID_ARGUMENT: a part is no text, such as an image.
StatusOr<std::string> JoinTexts(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return WrongType("content ", "a string or a list of parts", content);
  std::string joined;
  for (const Json& part : content) {
    if (const std::string* text = TextOfPart(part)) {
      joined += *text;
    } else if (!part.is_object() || !part.contains("text") || !part["text"].is_null()) {
      const std::string* type = part.is_object() ? FindText(part, "type") : nullptr;
      return RefuseByName("input", "An assistant's content has texts alone, got a part of type " +
                                       DumpJson(type == nullptr ? std::string(JsonTypeName(part))
                                                                : Shorten(*type, 64)));
    }
  }
  return joined;
}

// Text parts under chat's name; others are left for chat's own check to refuse.
Json ChatParts(const Json& parts) {
  Json result = Json::array();
  for (const Json& part : parts) {
    const std::string* type = part.is_object() ? FindText(part, "type") : nullptr;
    const std::string* text = part.is_object() ? FindText(part, "text") : nullptr;
    const bool is_text = type != nullptr && text != nullptr &&
                         (*type == "input_text" || *type == "output_text" || *type == "text");
    result.push_back(is_text ? Json({{"type", "text"}, {"text", *text}}) : part);
  }
  return result;
}

// Builds messages from items. The items of one assistant's turn (reasoning, a text, calls) become
// one message.
class MessageBuilder {
 public:
  explicit MessageBuilder(Json* messages) : messages_(messages) {}

  Status Add(const Json& item) {
    is_partial_ = false;
    if (!item.is_object()) return Wrong("must be an object");
    const std::string* type = FindText(item, "type");
    if (type == nullptr || *type == "message") return AddMessage(item);
    if (*type == "reasoning") return AddReasoning(item);
    if (*type == "function_call") return AddCall(item, "arguments");
    if (*type == "custom_tool_call") return AddCall(item, "input");
    if (*type == "function_call_output" || *type == "custom_tool_call_output") {
      return AddCallOutput(item);
    }
    if (*type == "item_reference") {
      return RefuseByName("input",
                          "Unsupported input item type: item_reference; set previous_response_id "
                          "to go on from a stored response, or send the item itself");
    }
    return RefuseByName("input", "Unsupported input item type: " + Shorten(*type));
  }

  // The last item is an assistant's message that is not complete.
  bool is_partial() const { return is_partial_; }

 private:
  static Status Wrong(const std::string& message) {
    return InvalidArgumentError("an item " + message);
  }

  Json& Assistant() {
    if (!in_turn_) messages_->push_back({{"role", "assistant"}});
    in_turn_ = true;
    return messages_->back();
  }

  Status AddMessage(const Json& item) {
    const std::string* role = FindText(item, "role");
    if (role == nullptr) return Wrong("of type message must have a role");
    const Json* content = Find(item, "content");
    if (*role == "assistant") {
      const bool goes_on = in_turn_ && !messages_->back().contains("content") &&
                           !messages_->back().contains("tool_calls");
      if (!goes_on) in_turn_ = false;
      std::string text;
      if (content != nullptr) {
        ASSIGN_OR_RETURN(text, JoinTexts(*content));
      }
      Assistant()["content"] = std::move(text);
      const std::string* status = FindText(item, "status");
      is_partial_ = status != nullptr && (*status == "in_progress" || *status == "incomplete");
      return OkStatus();
    }
    in_turn_ = false;
    Json message = {{"role", *role}};
    if (content != nullptr) {
      message["content"] = content->is_array() ? ChatParts(*content) : *content;
    }
    messages_->push_back(std::move(message));
    return OkStatus();
  }

  Status AddReasoning(const Json& item) {
    if (Find(item, "encrypted_content") != nullptr) {
      return RefuseByName("input", "Encrypted content is not supported.");
    }
    std::string text;
    for (const char* key : {"content", "summary"}) {
      const Json* parts = Find(item, key);
      if (!text.empty() || parts == nullptr) continue;
      ASSIGN_OR_RETURN(text, JoinTexts(*parts));
    }
    const bool only_reasoning = in_turn_ && !messages_->back().contains("content") &&
                                !messages_->back().contains("tool_calls");
    if (!only_reasoning) in_turn_ = false;
    Json& reasoning = Assistant()["reasoning"];
    reasoning = reasoning.is_null() ? text : reasoning.get<std::string>() + "\n" + text;
    return OkStatus();
  }

  Status AddCall(const Json& item, const char* payload_key) {
    const std::string* call_id = FindText(item, "call_id");
    const std::string* name = FindText(item, "name");
    const std::string* payload = FindText(item, payload_key);
    if (call_id == nullptr || name == nullptr || payload == nullptr) {
      return Wrong("that is a call must have the texts call_id, name and " +
                   std::string(payload_key));
    }
    const std::string* name_space = FindText(item, "namespace");
    const bool custom = payload_key == std::string_view("input");
    Json& calls = Assistant()["tool_calls"];
    if (calls.is_null()) calls = Json::array();
    calls.push_back(
        {{"id", *call_id},
         {"type", "function"},
         {"function",
          {{"name", FunctionName(name_space == nullptr ? "" : *name_space, *name)},
           {"arguments", custom ? "{\"input\": " + DumpJson(*payload) + "}" : *payload}}}});
    return OkStatus();
  }

  Status AddCallOutput(const Json& item) {
    const std::string* call_id = FindText(item, "call_id");
    const Json* output = Find(item, "output");
    if (call_id == nullptr || output == nullptr || !(output->is_string() || output->is_array())) {
      return Wrong("that is a call's output must have a call_id and an output");
    }
    in_turn_ = false;
    messages_->push_back({{"role", "tool"},
                          {"content", output->is_array() ? ChatParts(*output) : *output},
                          {"tool_call_id", *call_id}});
    return OkStatus();
  }

  Json* const messages_;
  bool in_turn_ = false;  // the last message is the assistant's and may get more items
  bool is_partial_ = false;
};

StatusOr<Json> ConversationOf(const ResponsesRequest& request, const JsonDocument& earlier,
                              bool* continue_final) {
  Json messages = Json::array();
  if (!request.previous_input_messages.is_null()) messages = *request.previous_input_messages;
  if (!earlier.is_null()) messages = *earlier;
  *continue_final = false;
  if (request.input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *request.input}});
    return messages;
  }
  RETURN_IF_ERROR(AppendItems(*request.input, &messages, continue_final));
  return messages;
}

// ---- Tools → functions ----

Json InputOfCustomTool() {
  return {{"type", "object"},
          {"properties", {{"input", {{"type", "string"}}}}},
          {"required", Json::array({"input"})}};
}

Json OrNull(const Json& object, const char* key) {
  const Json* value = Find(object, key);
  return value == nullptr ? Json(nullptr) : *value;
}

// Tools that OpenAI's servers run themselves, or that its models alone know how to call. Some
// clients offer them to every server.
bool IsOfProvider(std::string_view type) {
  constexpr std::string_view kTypes[] = {
      "apply_patch", "code_interpreter",          "computer",    "computer_use_preview",
      "file_search", "image_generation",          "local_shell", "mcp",
      "shell",       "programmatic_tool_calling", "tool_search"};
  return type.starts_with("web_search") || std::ranges::find(kTypes, type) != std::end(kTypes);
}

class FunctionList {
 public:
  // All of a list, which is the field.
  Status AddAll(const Json& list, const std::string& field, const std::string& name_space) {
    for (size_t i = 0; i < list.size(); ++i) {
      RETURN_IF_ERROR(Add(list[i], field + "[" + std::to_string(i) + "]", name_space));
    }
    return OkStatus();
  }

  void Keep(const std::vector<bool>& is_kept) {
    FunctionList kept;
    for (size_t i = 0; i < tools.size(); ++i) {
      if (!is_kept[i]) continue;
      kept.functions.push_back(std::move(functions[i]));
      kept.tools.push_back(std::move(tools[i]));
    }
    functions = std::move(kept.functions);
    tools = std::move(kept.tools);
  }

  Json functions = Json::array();
  ResponseTools tools;  // one for each function
  bool leaves_out = false;

 private:
  Status Add(const Json& tool, const std::string& field, const std::string& name_space) {
    const std::string* type = tool.is_object() ? FindText(tool, "type") : nullptr;
    const std::string* name = tool.is_object() ? FindText(tool, "name") : nullptr;
    if (type == nullptr) return RefuseByName("tools", "A tool must be an object with a type.");
    if (IsOfProvider(*type)) {
      leaves_out = true;
      return OkStatus();
    }
    const bool known = *type == "function" || *type == "custom" || *type == "namespace";
    if (!known || (*type == "namespace" && !name_space.empty())) {
      return RefuseByName("tools",
                          "Tools of type " + Shorten(*type) + " are not supported by this server.");
    }
    if (name == nullptr || name->empty()) return RefuseByName("tools", "A tool must have a name.");
    if (const Json* text = Find(tool, "description"); text != nullptr && !text->is_string()) {
      return RefuseByName("tools",
                          "The description of tool " + Shorten(*name) + " must be a text.");
    }
    if (*type == "namespace") return AddNamespace(tool, field, *name);
    ResponseTool entry = {FunctionName(name_space, *name), *name, name_space, *type == "custom",
                          field};
    Json parameters = OrNull(tool, "parameters");
    if (entry.custom) {
      const Json* format = Find(tool, "format");
      if (format != nullptr && format->is_object() && OrNull(*format, "type") == "grammar") {
        return RefuseByName(
            "tools",
            "Custom tools with a grammar format are not supported; only free-form text "
            "custom tools are accepted.");
      }
      parameters = InputOfCustomTool();
    }
    Json function = {{"name", entry.function_name},
                     {"description", OrNull(tool, "description")},
                     {"parameters", std::move(parameters)}};
    if (const Json* strict = Find(tool, "strict")) function["strict"] = *strict;
    functions.push_back({{"type", "function"}, {"function", std::move(function)}});
    tools.push_back(std::move(entry));
    return OkStatus();
  }

  Status AddNamespace(const Json& tool, const std::string& field, const std::string& name) {
    const Json* members = Find(tool, "tools");
    if (members == nullptr || !members->is_array()) {
      return RefuseByName("tools", "A namespace must have a list of tools.");
    }
    return AddAll(*members, field + ".tools", name);
  }
};

// The one tool with the function name; else the one tool of a namespace with the name.
const ResponseTool* FindChosen(const ResponseTools& tools, const std::string& name, bool custom) {
  const ResponseTool* chosen = nullptr;
  for (const ResponseTool& tool : tools) {
    if (tool.custom != custom) continue;
    if (tool.function_name == name) return &tool;
    if (tool.name != name) continue;
    if (chosen != nullptr) return nullptr;
    chosen = &tool;
  }
  return chosen;
}

// The tool that {type, name, namespace} names.
StatusOr<const ResponseTool*> NamedTool(const Json& named, const ResponseTools& tools) {
  const std::string* type = FindText(named, "type");
  const std::string* name = FindText(named, "name");
  const std::string* name_space = FindText(named, "namespace");
  const ResponseTool* tool = nullptr;
  if (type != nullptr && name != nullptr && (*type == "function" || *type == "custom")) {
    tool = FindChosen(tools, FunctionName(name_space == nullptr ? "" : *name_space, *name),
                      *type == "custom");
  }
  if (tool != nullptr) return tool;
  return RefuseByName("tool_choice", "Tool choice '" + (type == nullptr ? "" : Shorten(*type)) +
                                         "' not found in 'tools' parameter.");
}

// A choice among {mode, tools} is its mode, and the other tools are left out.
StatusOr<Json> ChoiceOfAllowed(const Json& choice, FunctionList* list) {
  const std::string* type = choice.is_object() ? FindText(choice, "type") : nullptr;
  if (type == nullptr || *type != "allowed_tools") return choice;
  const Json* mode = Find(choice, "mode");
  const Json* allowed = Find(choice, "tools");
  if (mode == nullptr || (*mode != "auto" && *mode != "required") || allowed == nullptr ||
      !allowed->is_array()) {
    return RefuseByName("tool_choice",
                        "allowed_tools must have the mode auto or required, and a list of tools");
  }
  std::vector<bool> is_allowed(list->tools.size());
  for (const Json& named : *allowed) {
    if (!named.is_object()) return RefuseByName("tool_choice", "allowed tools must be objects");
    const std::string* of_type = FindText(named, "type");
    if (of_type != nullptr && IsOfProvider(*of_type)) continue;
    ASSIGN_OR_RETURN(const ResponseTool* const tool, NamedTool(named, list->tools));
    is_allowed[static_cast<size_t>(tool - list->tools.data())] = true;
  }
  list->Keep(is_allowed);
  return *mode;
}

// As chat's tool_choice; null where there is nothing to choose.
StatusOr<Json> ChatToolChoice(const Json& choice, const ResponseTools& tools) {
  if (choice.is_null()) return Json(nullptr);
  if (choice.is_object()) {
    ASSIGN_OR_RETURN(const ResponseTool* const tool, NamedTool(choice, tools));
    return Json({{"type", "function"}, {"function", {{"name", tool->function_name}}}});
  }
  if (choice == "auto" || choice == "none") return tools.empty() ? Json(nullptr) : choice;
  if (choice != "required") {
    return ValueError("tool_choice", "must be none, auto, required or one of the tools", choice);
  }
  if (!tools.empty()) return choice;
  return RefuseByName("tool_choice",
                      "Tool choice 'required' must be specified with 'tools' parameter.");
}

// ---- Other fields ----

Status SetFormat(const JsonDocument& text, ChatRequest* chat) {
  const Json* format = text.is_null() ? nullptr : Find(*text, "format");
  if (format == nullptr) return OkStatus();
  Json response_format = *format;
  if (format->is_object() && OrNull(*format, "type") == "json_schema") {
    Json schema = *format;
    schema.erase("type");
    response_format = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
  }
  const Status status = ParseResponseFormat(response_format, chat);
  if (!status.ok()) {
    const bool about_schema = status.param() == "response_format";
    return InvalidArgumentError("text.format: " + status.message())
        .WithParam(about_schema ? "text.format.schema" : "text");
  }
  if (chat->response_format && chat->structured_outputs) {
    return RefuseByName("structured_outputs",
                        "Cannot specify both structured_outputs and text.format");
  }
  return CheckStructuredOutputs(*chat);
}

Status SetReasoning(const JsonDocument& reasoning, ChatRequest* chat) {
  const Json* effort = reasoning.is_null() ? nullptr : Find(*reasoning, "effort");
  if (effort == nullptr) return OkStatus();
  if (!effort->is_string()) {
    return InvalidArgumentError("reasoning.effort must be a string").WithParam("reasoning");
  }
  chat->reasoning_effort = effort->get<std::string>();
  return OkStatus();
}

Status SetMessages(Json messages, const ResponsesRequest& request, ChatRequest* chat) {
  if (request.instructions) {
    messages.insert(messages.begin(),
                    Json({{"role", "system"}, {"content", *request.instructions}}));
  }
  Status status = ParseMessages(messages, chat);
  return status.ok() ? status : std::move(status).WithParam("input");
}

}  // namespace

const ResponseTool* FindFunction(const ResponseTools& tools, std::string_view function_name) {
  const auto it = std::find_if(tools.begin(), tools.end(), [&](const ResponseTool& tool) {
    return tool.function_name == function_name;
  });
  return it == tools.end() ? nullptr : &*it;
}

Status AppendItems(const Json& items, Json* messages, bool* continue_final) {
  MessageBuilder builder(messages);
  for (const Json& item : items) RETURN_IF_ERROR(builder.Add(item));
  *continue_final = builder.is_partial();
  return OkStatus();
}

StatusOr<ChatOfResponses> ToChatRequest(ResponsesRequest& request, const JsonDocument& earlier) {
  ChatOfResponses result;
  ChatRequest& chat = result.chat;
  static_cast<GenerationRequest&>(chat) = std::move(static_cast<GenerationRequest&>(request));
  auto conversation = ConversationOf(request, earlier, &chat.continue_final_message);
  if (!conversation.ok()) return Status(conversation.status()).WithParam("input");
  if (request.store) result.conversation = JsonDocument(*conversation);
  RETURN_IF_ERROR(SetMessages(std::move(*conversation), request, &chat));
  FunctionList list;
  if (!request.tools.is_null()) RETURN_IF_ERROR(list.AddAll(*request.tools, "tools", ""));
  Json choice;
  if (!request.tool_choice.is_null()) {
    ASSIGN_OR_RETURN(choice, ChoiceOfAllowed(*request.tool_choice, &list));
  }
  ASSIGN_OR_RETURN(choice, ChatToolChoice(choice, list.tools));
  chat.tool_choice = JsonDocument(std::move(choice));
  result.tools = std::move(list.tools);
  result.leaves_out_tools = list.leaves_out;
  if (!result.tools.empty()) chat.tools = JsonDocument(std::move(list.functions));
  chat.parallel_tool_calls = request.parallel_tool_calls;
  chat.max_completion_tokens = request.max_output_tokens;
  if (request.truncation == "auto") chat.truncate_prompt_tokens = -1;
  chat.logprobs = request.shows_logprobs();
  chat.logprobs_of_content = chat.logprobs;
  if (chat.logprobs) chat.top_logprobs = request.top_logprobs.value_or(0);
  chat.include_reasoning = request.include_reasoning;
  RETURN_IF_ERROR(SetReasoning(request.reasoning, &chat));
  RETURN_IF_ERROR(SetFormat(request.text, &chat));
  if (!request.chat_template_kwargs.is_null()) {
    RETURN_IF_ERROR(ParseChatTemplateKwargs(request.chat_template_kwargs.mutable_value(), &chat));
  }
  chat.mm_processor_kwargs = std::move(request.mm_processor_kwargs);
  RETURN_IF_ERROR(CheckChatRequest(chat));
  return result;
}

}  // namespace tandem
