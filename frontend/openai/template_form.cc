#include "frontend/openai/template_form.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/openai/message_content.h"
#include "frontend/openai/parse.h"

namespace tandem {
namespace {

Json ValueOf(const Json& object, const char* key) {
  const Json* value = Find(object, key);
  return value == nullptr ? Json() : *value;
}

bool IsSystem(const Json& message) { return message["role"] == "system"; }

std::string TextOf(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::vector<std::string_view> texts;
  for (const Json& part : content) {
    const Json* text = Find(part, "text");
    if (text != nullptr) texts.push_back(text->get_ref<const std::string&>());
  }
  return JoinTexts(texts);
}

// One message of the system at the front, unless that is how it is.
void MergeSystem(Json* messages) {
  bool is_merged = true;
  for (size_t i = 1; i < messages->size(); ++i) is_merged &= !IsSystem((*messages)[i]);
  if (is_merged) return;
  std::string all;
  bool as_parts = false;
  Json others = Json::array();
  for (Json& message : *messages) {
    if (!IsSystem(message)) {
      others.push_back(std::move(message));
      continue;
    }
    as_parts |= message["content"].is_array();
    const std::string text = TextOf(message["content"]);
    if (!all.empty() && !text.empty()) all += "\n\n";
    all += text;
  }
  Json content = std::move(all);
  if (as_parts) content = Json::array({{{"type", "text"}, {"text", std::move(content)}}});
  others.insert(others.begin(), Json({{"role", "system"}, {"content", std::move(content)}}));
  *messages = std::move(others);
}

}  // namespace

Json ToolsForTemplate(const Json& tools, bool writes_descriptions) {
  Json shown = Json::array();
  for (const Json& tool : tools) {
    const Json& given = tool["function"];
    Json function = {{"name", given["name"]},
                     {"description", ValueOf(given, "description")},
                     {"parameters", ValueOf(given, "parameters")}};
    if (writes_descriptions && function["description"].is_null()) function["description"] = "";
    for (const char* key : {"strict", "defer_loading"}) {
      if (const Json* flag = Find(given, key)) function[key] = *flag;
    }
    Json entry = {{"type", "function"}, {"function", std::move(function)}};
    if (const Json* flag = Find(tool, "defer_loading")) entry["defer_loading"] = *flag;
    shown.push_back(std::move(entry));
  }
  return shown;
}

void DevelopersAsSystem(Json* messages) {
  bool has_developer = false;
  for (Json& message : *messages) {
    if (message["role"] != "developer") continue;
    has_developer = true;
    message["role"] = "system";
    message.erase("tools");
  }
  if (has_developer) MergeSystem(messages);
}

void SetHarmonyForm(Json* messages) {
  DevelopersAsSystem(messages);
  MergeSystem(messages);
  for (Json& message : *messages) {
    const auto reasoning = message.find("reasoning");
    if (reasoning == message.end() || !message.contains("tool_calls")) continue;
    Json& content = message["content"];
    if (!content.is_string() || content == "" || *reasoning == "") continue;
    *reasoning = reasoning->get<std::string>() + "\n" + content.get<std::string>();
    content = "";
  }
}

}  // namespace tandem
