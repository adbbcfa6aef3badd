#include "frontend/anthropic/messages_request.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "common/shorten.h"
#include "frontend/openai/parse_fields.h"
#include "frontend/openai/refuse.h"

namespace tandem {
namespace {

// A form error of the field; where: "message 3 content block 0 ".
Status WrongForm(const std::string& where, std::string_view must_be) {
  return InvalidArgumentError(where + std::string(must_be));
}

bool IsText(const Json* value) { return value != nullptr && value->is_string(); }

std::string Quoted(const Json& text) {
  return DumpJson(Shorten(text.get_ref<const std::string&>()));
}

Status NeedText(const std::string& where, const Json& object, const char* key) {
  if (IsText(Find(object, key))) return OkStatus();
  return WrongForm(where, "must have the key " + std::string(key) + " with a string");
}

Status NeedObject(const std::string& where, const Json& object, const char* key) {
  const Json* value = Find(object, key);
  if (value != nullptr && value->is_object()) return OkStatus();
  return WrongForm(where, "must have the key " + std::string(key) + " with an object");
}

Status StoreObject(Json& value, JsonDocument* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  *out = JsonDocument(std::move(value));
  return OkStatus();
}

// ---- Tools ----

Status CheckTool(const std::string& where, const Json& tool) {
  if (!tool.is_object()) return WrongType(where, "an object", tool);
  const Json* type = Find(tool, "type");
  if (type != nullptr && *type != "custom") {
    if (!type->is_string()) return WrongType(where + "type ", "a string", *type);
    return Refuse("tools", "tools of type " + Quoted(*type) +
                               " are not supported by this server; only custom tools with an "
                               "input_schema are");
  }
  RETURN_IF_ERROR(NeedText(where, tool, "name"));
  if (tool["name"] == "") return WrongForm(where, "must have a name that is not empty");
  RETURN_IF_ERROR(NeedObject(where, tool, "input_schema"));
  const Json* description = Find(tool, "description");
  if (description && !description->is_string()) {
    return WrongType(where + "description ", "a string", *description);
  }
  for (const char* key : {"strict", "defer_loading"}) {
    const Json* flag = Find(tool, key);
    if (flag && !flag->is_boolean()) return WrongType(where + key + " ", "a boolean", *flag);
  }
  return OkStatus();
}

// ---- Content blocks ----

Status CheckText(const std::string& where, const Json& block) {
  return NeedText(where, block, "text");
}

// The source is base64 with its media type, or a URL.
Status CheckImage(const std::string& where, const Json& block) {
  RETURN_IF_ERROR(NeedObject(where, block, "source"));
  const Json& source = block["source"];
  const Json* type = Find(source, "type");
  if (type != nullptr && *type == "url") return NeedText(where + "source ", source, "url");
  if (type == nullptr || *type != "base64") {
    return WrongForm(where, "must have a source of type base64 or url");
  }
  RETURN_IF_ERROR(NeedText(where + "source ", source, "media_type"));
  return NeedText(where + "source ", source, "data");
}

Status CheckToolUse(const std::string& where, const Json& block) {
  RETURN_IF_ERROR(NeedText(where, block, "id"));
  RETURN_IF_ERROR(NeedText(where, block, "name"));
  return Find(block, "input") == nullptr ? OkStatus() : NeedObject(where, block, "input");
}

Status CheckToolResult(const std::string& where, const Json& block) {
  RETURN_IF_ERROR(NeedText(where, block, "tool_use_id"));
  const Json* content = Find(block, "content");
  if (content == nullptr || content->is_string()) return OkStatus();
  if (!content->is_array()) return WrongType(where + "content ", "a string or blocks", *content);
  for (const Json& part : *content) {
    const Json* type = part.is_object() ? Find(part, "type") : nullptr;
    if (!IsText(type)) return WrongForm(where, "must have content blocks with a type");
    if (*type == "image") {
      RETURN_IF_ERROR(CheckImage(where + "content ", part));
      continue;
    }
    if (*type == "tool_reference") {
      RETURN_IF_ERROR(NeedText(where + "content ", part,
                               Find(part, "tool_name") == nullptr ? "name" : "tool_name"));
      continue;
    }
    if (*type != "text") {
      return Refuse("messages", Quoted(*type) +
                                    " blocks in tool results are not supported by this server; "
                                    "only text, image and tool_reference are");
    }
    RETURN_IF_ERROR(NeedText(where + "content ", part, "text"));
  }
  return OkStatus();
}

Status CheckThinking(const std::string& where, const Json& block) {
  return NeedText(where, block, "thinking");
}

Status Accept(const std::string&, const Json&) { return OkStatus(); }

Status CheckToolChange(const std::string& where, const Json& block) {
  RETURN_IF_ERROR(NeedObject(where, block, "tool"));
  const Json& tool = block["tool"];
  const Json* type = Find(tool, "type");
  if (type != nullptr && *type == "tool_reference") {
    return NeedText(where + "tool ", tool, "name");
  }
  if (type != nullptr && *type == "tool_definition" && block["type"] == "tool_addition") {
    const Json* definition = Find(tool, "definition");
    if (definition == nullptr) return WrongForm(where, "must have a tool with a definition");
    return CheckTool(where + "definition ", *definition);
  }
  return WrongForm(where,
                   "must have a tool of type tool_reference (or, to add one, "
                   "tool_definition)");
}

// The kinds of block, the roles that may have them, and what they must contain.
struct BlockRow {
  std::string_view type;
  std::vector<std::string_view> roles;
  Status (*check)(const std::string& where, const Json& block);
};

const std::vector<BlockRow>& BlockRows() {
  static const std::vector<BlockRow> rows = {
      {"text", {"user", "assistant", "system"}, CheckText},
      {"image", {"user"}, CheckImage},
      {"tool_use", {"assistant"}, CheckToolUse},
      {"tool_result", {"user"}, CheckToolResult},
      {"thinking", {"assistant"}, CheckThinking},
      {"redacted_thinking", {"assistant"}, Accept},
      {"tool_addition", {"system"}, CheckToolChange},
      {"tool_removal", {"system"}, CheckToolChange},
  };
  return rows;
}

std::string KnownBlocks() {
  std::string names;
  for (const BlockRow& row : BlockRows()) {
    names.append(names.empty() ? "" : ", ").append(row.type);
  }
  return names;
}

Status CheckBlock(const std::string& where, const Json& role, const Json& block) {
  const Json* type = block.is_object() ? Find(block, "type") : nullptr;
  if (!IsText(type)) return WrongForm(where, "must be an object with a type");
  for (const BlockRow& row : BlockRows()) {
    if (*type != row.type) continue;
    std::string roles;
    for (const std::string_view allowed : row.roles) {
      if (role == allowed) return row.check(where, block);
      roles.append(roles.empty() ? "\"" : " or \"").append(allowed).append("\"");
    }
    return WrongForm(where, "is wrong: " + std::string(row.type) +
                                " blocks are only allowed in messages with role " + roles);
  }
  return WrongForm(where, "has the type " + Quoted(*type) + "; this server takes " + KnownBlocks());
}

Status CheckMessage(const std::string& where, const Json& message) {
  if (!message.is_object()) return WrongType(where, "an object", message);
  const Json* role = Find(message, "role");
  if (!IsText(role)) return WrongForm(where, "must have a role");
  if (*role != "user" && *role != "assistant" && *role != "system") {
    return WrongForm(where, "must have the role user, assistant or system, got " + Quoted(*role));
  }
  const Json* content = Find(message, "content");
  if (IsText(content)) return OkStatus();
  if (content == nullptr || !content->is_array()) {
    return WrongForm(where, "must have a content, which is a string or a list of blocks");
  }
  for (size_t i = 0; i < content->size(); ++i) {
    RETURN_IF_ERROR(
        CheckBlock(where + "content block " + std::to_string(i) + " ", *role, (*content)[i]));
  }
  return OkStatus();
}

}  // namespace

// ---- Fields ----

Status ParseAnthropicMessages(Json& value, MessagesRequest* out) {
  if (!value.is_array()) return WrongType("", "a list", value);
  if (value.empty()) return Refuse("messages", "messages must not be empty");
  for (size_t i = 0; i < value.size(); ++i) {
    RETURN_IF_ERROR(CheckMessage("message " + std::to_string(i) + " ", value[i]));
  }
  out->messages = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseMaxTokens(Json& value, MessagesRequest* out) {
  const Complaint complaint = ReadValue(value, &out->max_tokens);
  if (!complaint.empty()) {
    return InvalidArgumentError(std::string(complaint) + ", got " +
                                std::string(JsonTypeName(value)));
  }
  if (*out->max_tokens < 1) return Refuse("max_tokens", "max_tokens must be positive");
  return OkStatus();
}

Status ParseSystem(Json& value, MessagesRequest* out) {
  if (!value.is_string() && !value.is_array()) {
    return WrongType("", "a string or a list of text blocks", value);
  }
  if (value.is_array()) {
    for (const Json& block : value) {
      const Json* type = block.is_object() ? Find(block, "type") : nullptr;
      if (type == nullptr || *type != "text" || !IsText(Find(block, "text"))) {
        return InvalidArgumentError("must be a string or a list of text blocks");
      }
    }
  }
  out->system = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseAnthropicTools(Json& value, MessagesRequest* out) {
  if (!value.is_array()) return WrongType("", "a list", value);
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < value.size(); ++i) {
    RETURN_IF_ERROR(CheckTool("tool " + std::to_string(i) + " ", value[i]));
    const Json& name = value[i]["name"];
    if (!names.insert(name.get_ref<const std::string&>()).second) {
      return Refuse("tools", "tool names must be different, " + Quoted(name) + " occurs twice");
    }
  }
  out->tools = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseAnthropicToolChoice(Json& value, MessagesRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  const Json* type = Find(value, "type");
  if (type == nullptr ||
      (*type != "auto" && *type != "any" && *type != "tool" && *type != "none")) {
    return InvalidArgumentError("must have the type auto, any, tool or none");
  }
  if (*type == "tool" && !IsText(Find(value, "name"))) {
    return Refuse("tool_choice", "tool_choice.name is required when type is 'tool'");
  }
  const Json* single = Find(value, "disable_parallel_tool_use");
  if (single && !single->is_boolean()) {
    return WrongType("disable_parallel_tool_use ", "a boolean", *single);
  }
  out->tool_choice = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseThinking(Json& value, MessagesRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  const Json* type = Find(value, "type");
  if (type == nullptr || (*type != "enabled" && *type != "disabled" && *type != "adaptive")) {
    return InvalidArgumentError("must have the type enabled, disabled or adaptive");
  }
  if (*type == "enabled") {
    const auto budget = value.find("budget_tokens");
    int64_t tokens = 0;
    if (budget == value.end() || !ReadValue(*budget, &tokens).empty()) {
      return InvalidArgumentError("must have budget_tokens, which is an integer");
    }
    if (tokens < kMinThinkingBudget) {
      return Refuse("thinking", "thinking.budget_tokens must be at least " +
                                    std::to_string(kMinThinkingBudget));
    }
  }
  out->thinking = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseOutputConfig(Json& value, MessagesRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  const Json* effort = Find(value, "effort");
  if (effort && !effort->is_string()) return WrongType("effort ", "a string", *effort);
  if (const Json* format = Find(value, "format")) {
    if (!format->is_object()) return WrongType("format ", "an object", *format);
    const Json* type = Find(*format, "type");
    if (type == nullptr || *type != "json_schema") {
      return InvalidArgumentError("format must have the type json_schema");
    }
    RETURN_IF_ERROR(NeedObject("format ", *format, "schema"));
  }
  out->output_config = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParsePassedKvTransferParams(Json& value, MessagesRequest* out) {
  return StoreObject(value, &out->kv_transfer_params);
}

Status ParsePassedEcTransferParams(Json& value, MessagesRequest* out) {
  return StoreObject(value, &out->ec_transfer_params);
}

Status ParsePassedXargs(Json& value, MessagesRequest* out) {
  return StoreObject(value, &out->vllm_xargs);
}

Status ParsePassedTemplateKwargs(Json& value, MessagesRequest* out) {
  return StoreObject(value, &out->chat_template_kwargs);
}

// ---- The body ----

StatusOr<MessagesRequest> ParseMessagesRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  MessagesRequest request;
  BodyErrors errors;
  const bool has_messages = !IsAbsent(body, "messages");
  ParseFields<MessagesRequest>(body, kMessagesFields, &request, &errors);
  LogUnknownFields(body, kMessagesFields);
  if (!has_messages) errors.AddForm("body.messages", "is required");
  RETURN_IF_ERROR(errors.Result());
  if (!request.thinking.is_null() && request.max_tokens) {
    const Json* budget = Find(*request.thinking, "budget_tokens");
    if (budget != nullptr && *request.thinking->find("type") == "enabled" &&
        budget->get<double>() >= static_cast<double>(*request.max_tokens)) {
      return Refuse("thinking", "thinking.budget_tokens must be less than max_tokens");
    }
  }
  return request;
}

}  // namespace tandem
