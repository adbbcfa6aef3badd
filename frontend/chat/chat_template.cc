#include "frontend/chat/chat_template.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/strings.h"
#include "frontend/chat/content_format.h"
#include "frontend/jinja/interpreter.h"
#include "frontend/jinja/parser.h"
#include "frontend/jinja/text.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

// transformers' mark: put after the last message, and the output is cut where it appears. The blank
// shows whether the template trims its contents.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

// A message's reasoning has had several names; templates ask for any of them.
void ShareReasoning(ordered_json* message) {
  const ordered_json* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto it = message->find(name);
    if (it == message->end()) continue;
    reasoning = &*it;
    break;
  }
  if (reasoning == nullptr) return;
  const ordered_json copy = *reasoning;
  for (const char* name : {"thinking", "reasoning_content"}) {
    if (!message->contains(name)) (*message)[name] = copy;
  }
}

bool HasReasoning(const ordered_json& messages) {
  return std::any_of(messages.begin(), messages.end(), [](const ordered_json& message) {
    return message.contains("reasoning_content") || message.contains("thinking") ||
           message.contains("reasoning");
  });
}

// Puts the tag after the last message's text and returns that text as it was.
StatusOr<std::string> AddContinueTag(ordered_json* messages) {
  ordered_json* content = nullptr;
  if (!messages->empty() && messages->back().is_object()) {
    const auto it = messages->back().find("content");
    if (it != messages->back().end()) content = &*it;
  }
  if (content != nullptr && content->is_array()) {
    ordered_json* text = nullptr;
    for (ordered_json& part : *content) {
      if (part.is_object() && part.contains("text")) text = &part["text"];
    }
    content = text;
  }
  if (content == nullptr || !content->is_string()) {
    return InvalidArgumentError(
        "continue_final_message is set but the final message has no text to continue");
  }
  std::string before = content->get<std::string>();
  *content = before + std::string(kContinueTag);
  return before;
}

StatusOr<std::string> CutAtContinueTag(std::string text, std::string_view final_text) {
  const std::string_view mark = jinja::Strip(kContinueTag, {}, true, true);
  const size_t at = text.rfind(mark);
  const std::string_view stripped = jinja::Strip(final_text, {}, true, true);
  if (at == std::string::npos || text.find(stripped) == std::string::npos) {
    return InvalidArgumentError(
        "continue_final_message is set but the final message does not appear in the chat after "
        "applying the chat template");
  }
  const bool kept_blank = text.compare(at, kContinueTag.size(), kContinueTag) == 0;
  text.resize(at);
  if (!kept_blank) text.resize(jinja::Strip(text, {}, false, true).size());
  return text;
}

}  // namespace

ChatTemplate::ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

StatusOr<ChatTemplate> ChatTemplate::Compile(std::string_view source, ChatTemplateLimits limits) {
  if (static_cast<int64_t>(source.size()) > limits.max_template_bytes) {
    return ResourceExhaustedError("chat template holds " + std::to_string(source.size()) +
                                  " bytes, at most " + std::to_string(limits.max_template_bytes) +
                                  " allowed");
  }
  if (const size_t pos = FindInvalidUtf8(source); pos != std::string_view::npos) {
    return InvalidArgumentError("chat template is not UTF-8 at byte " + std::to_string(pos));
  }
  auto parsed = jinja::Parse(source);
  if (!parsed.ok()) {
    return Status(parsed.status().code(), "chat template " + parsed.status().message());
  }
  ChatTemplate result;
  result.template_ = *std::move(parsed);
  result.limits_ = limits;
  result.source_ = source;
  result.content_format_ = FindContentFormat(*result.template_);
  result.knows_developers_ =
      source.find("\"developer\"") != source.npos || source.find("'developer'") != source.npos;
  return result;
}

StatusOr<std::string> ChatTemplate::RenderDict(
    const std::vector<std::pair<std::string, const ordered_json*>>& variables,
    int64_t now_s) const {
  jinja::Interpreter interpreter(
      {limits_.max_steps, limits_.max_output_bytes, limits_.max_value_bytes, limits_.max_depth},
      now_s);
  jinja::Dict dict;
  for (const auto& [name, value] : variables) {
    dict.Set(jinja::Text(name), interpreter.heap().FromJson(*value));
  }
  return interpreter.Render(*template_, dict);
}

StatusOr<std::string> ChatTemplate::RenderVariables(const ordered_json& variables,
                                                    int64_t now_s) const {
  if (!variables.is_object()) return InvalidArgumentError("template variables must be an object");
  std::vector<std::pair<std::string, const ordered_json*>> list;
  for (auto it = variables.begin(); it != variables.end(); ++it) list.emplace_back(it.key(), &*it);
  return RenderDict(list, now_s);
}

StatusOr<std::string> ChatTemplate::Render(const ChatTemplateInput& input) const {
  if (input.messages == nullptr || !input.messages->is_array()) {
    return InvalidArgumentError("messages must be an array");
  }
  if (input.add_generation_prompt && input.continue_final_message) {
    return InvalidArgumentError(
        "add_generation_prompt and continue_final_message cannot both be true");
  }
  // The caller's messages are used as they are unless something must be added to them.
  ordered_json copy;
  const ordered_json* messages = input.messages;
  std::string final_text;
  if (input.continue_final_message || HasReasoning(*messages)) {
    copy = *messages;
    messages = &copy;
    for (ordered_json& message : copy) {
      if (message.is_object()) ShareReasoning(&message);
    }
  }
  if (input.continue_final_message) {
    ASSIGN_OR_RETURN(final_text, AddContinueTag(&copy));
  }

  const ordered_json none;
  const ordered_json add_generation_prompt = input.add_generation_prompt;
  std::vector<std::pair<std::string, const ordered_json*>> variables = {
      {"messages", messages},
      {"tools", input.tools != nullptr ? input.tools : &none},
      {"documents", input.documents != nullptr ? input.documents : &none},
      {"add_generation_prompt", &add_generation_prompt}};
  ordered_json special_tokens = ordered_json::object();
  if (input.special_tokens != nullptr) {
    for (const auto& [name, text] : *input.special_tokens) special_tokens[name] = text;
  }
  // Later names win: chat_template_kwargs over what we set.
  for (auto it = special_tokens.begin(); it != special_tokens.end(); ++it) {
    variables.emplace_back(it.key(), &*it);
  }
  if (input.kwargs != nullptr && input.kwargs->is_object()) {
    for (auto it = input.kwargs->begin(); it != input.kwargs->end(); ++it) {
      variables.emplace_back(it.key(), &*it);
    }
  }
  ASSIGN_OR_RETURN(std::string text, RenderDict(variables, input.now_s));
  if (!input.continue_final_message) return text;
  return CutAtContinueTag(std::move(text), final_text);
}

}  // namespace tandem
