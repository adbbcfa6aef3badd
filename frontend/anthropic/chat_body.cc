#include "frontend/anthropic/chat_body.h"

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "frontend/openai/message_content.h"

namespace tandem {
namespace {

const std::string& TextOf(const Json& block) { return block["text"].get_ref<const std::string&>(); }

std::string SystemText(const Json& system) {
  if (system.is_string()) return system.get<std::string>();
  std::string text;
  for (const Json& block : system) {
    if (block["type"] == "text" && !IsBillingHeader(TextOf(block))) text += TextOf(block);
  }
  return text;
}

// ---- Tools ----

Json FunctionOf(const Json& tool) {
  const Json* description = Find(tool, "description");
  Json function = {{"name", tool["name"]},
                   {"description", description == nullptr ? Json(nullptr) : *description},
                   {"parameters", tool["input_schema"]}};
  if (!function["parameters"].contains("type")) function["parameters"]["type"] = "object";
  for (const char* key : {"strict", "defer_loading"}) {
    if (const Json* flag = Find(tool, key)) function[key] = *flag;
  }
  return {{"type", "function"}, {"function", std::move(function)}};
}

// The tools in effect: those of the request, changed by blocks of system messages.
class ToolList {
 public:
  explicit ToolList(const JsonDocument& tools) {
    if (tools.is_null()) return;
    for (const Json& tool : *tools) Define(FunctionOf(tool));
  }

  Status Apply(const Json& block) {
    const Json& tool = block["tool"];
    if (tool["type"] == "tool_definition") {
      Define(FunctionOf(tool["definition"]));
      return OkStatus();
    }
    const auto known = by_name_.find(tool["name"].get<std::string>());
    if (known == by_name_.end()) {
      return InvalidArgumentError("a " + block["type"].get<std::string>() +
                                  " block names a tool that the request does not define")
          .WithParam("messages");
    }
    Tool& changed = tools_[known->second];
    changed.in_effect = block["type"] == "tool_addition";
    if (changed.in_effect) changed.function["function"].erase("defer_loading");
    return OkStatus();
  }

  Json Take() {
    Json functions = Json::array();
    for (Tool& tool : tools_) {
      if (tool.in_effect) functions.push_back(std::move(tool.function));
    }
    return functions;
  }

 private:
  struct Tool {
    Json function;
    bool in_effect = true;
  };

  // A definition replaces an earlier one of the same name.
  void Define(Json function) {
    const auto [it, is_new] =
        by_name_.try_emplace(function["function"]["name"].get<std::string>(), tools_.size());
    if (!is_new) {
      tools_[it->second].in_effect = false;
      it->second = tools_.size();
    }
    tools_.push_back({std::move(function)});
  }

  std::vector<Tool> tools_;
  std::unordered_map<std::string, size_t> by_name_;
};

// ---- Messages ----

// One text part is a text; an image, and several parts, stay parts.
Json ContentOf(Json parts) {
  if (parts.empty()) return "";
  if (parts.size() == 1 && parts[0]["type"] == "text") return std::move(parts[0]["text"]);
  return parts;
}

// Clients send blocks without text beside calls and their results.
bool IsEmptyText(const Json& block) { return block["type"] == "text" && TextOf(block).empty(); }

Json PartOf(Json& block) {
  if (block["type"] != "image") return {{"type", "text"}, {"text", std::move(block["text"])}};
  Json& source = block["source"];
  Json url = source["type"] == "url"
                 ? std::move(source["url"])
                 : Json("data:" + source["media_type"].get<std::string>() + ";base64," +
                        source["data"].get_ref<const std::string&>());
  return {{"type", "image_url"}, {"image_url", {{"url", std::move(url)}}}};
}

// A tool's message has texts alone; its images follow as the user's, then the tools that it has
// found.
void AppendToolResult(Json& block, Json* messages) {
  std::string text;
  Json images = Json::array(), references = Json::array();
  const auto content = block.find("content");
  if (content != block.end() && content->is_string()) text = content->get<std::string>();
  if (content != block.end() && content->is_array()) {
    bool is_first = true;
    for (Json& part : *content) {
      if (part["type"] == "image") {
        images.push_back(PartOf(part));
        continue;
      }
      if (part["type"] == "tool_reference") {
        const Json* name = Find(part, "tool_name");
        references.push_back(
            {{"type", "tool_reference"}, {"name", name == nullptr ? part["name"] : *name}});
        continue;
      }
      if (!is_first) text += '\n';
      is_first = false;
      text += TextOf(part);
    }
  }
  const Json id = std::move(block["tool_use_id"]);
  messages->push_back({{"role", "tool"}, {"content", std::move(text)}, {"tool_call_id", id}});
  if (!images.empty()) {
    messages->push_back({{"role", "user"}, {"content", std::move(images)}});
  }
  if (references.empty()) return;
  messages->push_back({{"role", "tool"}, {"content", std::move(references)}, {"tool_call_id", id}});
}

// Results of tools first, each a message of its own, then the rest of the turn.
void AppendUserTurn(Json& blocks, Json* messages) {
  Json parts = Json::array();
  bool has_result = false;
  for (Json& block : blocks) {
    if (block["type"] == "tool_result") {
      AppendToolResult(block, messages);
      has_result = true;
    } else if (!IsEmptyText(block)) {
      parts.push_back(PartOf(block));
    }
  }
  if (has_result && parts.empty()) return;
  messages->push_back({{"role", "user"}, {"content", ContentOf(std::move(parts))}});
}

void AppendAssistantTurn(Json& blocks, Json* messages) {
  Json parts = Json::array();
  Json calls = Json::array();
  std::string reasoning;
  for (Json& block : blocks) {
    const Json& type = block["type"];
    if (IsEmptyText(block)) continue;
    if (type == "text") {
      parts.push_back({{"type", "text"}, {"text", std::move(block["text"])}});
    } else if (type == "thinking") {
      reasoning += block["thinking"].get_ref<const std::string&>();
    } else if (type == "tool_use") {
      const Json* input = Find(block, "input");
      Json function = {{"name", std::move(block["name"])},
                       {"arguments", input == nullptr ? Json::object() : *input}};
      calls.push_back({{"id", std::move(block["id"])},
                       {"type", "function"},
                       {"function", std::move(function)}});
    }
  }
  Json message = {{"role", "assistant"}};
  if (!parts.empty() || calls.empty()) message["content"] = ContentOf(std::move(parts));
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  if (!reasoning.empty()) message["reasoning"] = std::move(reasoning);
  messages->push_back(std::move(message));
}

// The leading system message, or one in its place among the others.
class SystemMessages {
 public:
  explicit SystemMessages(bool anywhere) : anywhere_(anywhere) {}

  void AddLeading(std::string text) { leading_ = std::move(text); }
  void AddInPlace(std::string text, Json* messages) {
    if (text.empty()) return;
    if (anywhere_) {
      messages->push_back({{"role", "system"}, {"content", std::move(text)}});
    } else {
      if (!leading_.empty()) leading_ += "\n\n";
      leading_ += text;
    }
  }
  const std::string& leading() const { return leading_; }

 private:
  const bool anywhere_;
  std::string leading_;
};

StatusOr<Json> MessagesOf(MessagesRequest& request, const TemplateTraits& traits, ToolList* tools) {
  SystemMessages system(traits.system_anywhere);
  if (!request.system.is_null()) system.AddLeading(SystemText(*request.system));
  Json turns = Json::array();
  for (Json& message : request.messages.mutable_value()) {
    Json& content = message["content"];
    if (message["role"] == "system") {
      system.AddInPlace(SystemText(content), &turns);
      if (content.is_string()) continue;
      for (const Json& block : content) {
        if (block["type"] != "text") RETURN_IF_ERROR(tools->Apply(block));
      }
    } else if (content.is_string()) {
      turns.push_back({{"role", message["role"]}, {"content", std::move(content)}});
    } else if (message["role"] == "user") {
      AppendUserTurn(content, &turns);
    } else {
      AppendAssistantTurn(content, &turns);
    }
  }
  if (!system.leading().empty()) {
    turns.insert(turns.begin(), Json({{"role", "system"}, {"content", system.leading()}}));
  }
  return turns;
}

// ---- The other fields ----

void SetToolChoice(const JsonDocument& choice, bool has_tools, Json* chat) {
  if (choice.is_null()) {
    if (has_tools) (*chat)["tool_choice"] = "auto";
    return;
  }
  const Json& type = (*choice)["type"];
  if (type == "auto" && !has_tools) return;
  if (type == "any") {
    (*chat)["tool_choice"] = "required";
  } else if (type == "tool") {
    (*chat)["tool_choice"] = {{"type", "function"}, {"function", {{"name", (*choice)["name"]}}}};
  } else {
    (*chat)["tool_choice"] = type;
  }
  const Json* single = Find(*choice, "disable_parallel_tool_use");
  (*chat)["parallel_tool_calls"] = single == nullptr || !single->get<bool>();
}

void SetThinking(const MessagesRequest& request, const TemplateTraits& traits, Json* chat) {
  if (!request.output_config.is_null()) {
    if (const Json* effort = Find(*request.output_config, "effort")) {
      (*chat)["reasoning_effort"] = *effort;
    }
    if (const Json* format = Find(*request.output_config, "format")) {
      (*chat)["response_format"] = {
          {"type", "json_schema"},
          {"json_schema", {{"name", "json_schema"}, {"schema", (*format)["schema"]}}}};
    }
  }
  if (request.thinking.is_null()) return;
  const Json& type = (*request.thinking)["type"];
  if (type == "enabled") {
    (*chat)["thinking_token_budget"] = (*request.thinking)["budget_tokens"];
  } else if (type == "disabled") {
    (*chat)["reasoning_effort"] = traits.effort_without_thinking;
  }
}

}  // namespace

StatusOr<Json> ChatBodyOf(MessagesRequest request, const TemplateTraits& traits) {
  ToolList tools(request.tools);
  Json chat = Json::object();
  if (request.model) chat["model"] = *request.model;
  ASSIGN_OR_RETURN(chat["messages"], MessagesOf(request, traits, &tools));
  if (request.max_tokens) {
    chat["max_tokens"] = *request.max_tokens;
    chat["max_completion_tokens"] = *request.max_tokens;
  }
  if (!request.stop_sequences.empty()) chat["stop"] = request.stop_sequences;
  if (request.stream) {
    chat["stream"] = true;
    chat["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  }
  if (request.temperature) chat["temperature"] = *request.temperature;
  if (request.top_p) chat["top_p"] = *request.top_p;
  if (request.top_k) chat["top_k"] = *request.top_k;
  Json functions = tools.Take();
  const bool has_tools = !functions.empty();
  if (has_tools) chat["tools"] = std::move(functions);
  SetToolChoice(request.tool_choice, has_tools, &chat);
  SetThinking(request, traits, &chat);
  if (request.cache_salt) chat["cache_salt"] = *request.cache_salt;
  if (request.watermarking) chat["watermarking"] = *request.watermarking;
  const std::pair<const char*, JsonDocument*> passed[] = {
      {"kv_transfer_params", &request.kv_transfer_params},
      {"ec_transfer_params", &request.ec_transfer_params},
      {"vllm_xargs", &request.vllm_xargs},
      {"chat_template_kwargs", &request.chat_template_kwargs}};
  for (const auto& [name, value] : passed) {
    if (!value->is_null()) chat[name] = std::move(value->mutable_value());
  }
  return chat;
}

}  // namespace tandem
