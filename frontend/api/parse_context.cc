#include "frontend/api/parse_context.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "common/shorten.h"
#include "frontend/openai/refuse.h"

namespace tandem {
namespace {

constexpr std::string_view kContextFields[] = {"tools", "tool_choice", "parallel_tool_calls",
                                               "include_reasoning", "chat_template_kwargs"};
// The number of calls in the conversation, for formats that number on; ours have ids of their own.
constexpr std::string_view kHistory = "history_tool_call_cnt";

int64_t NumCalls(const ChatRequest& request) {
  int64_t num_calls = 0;
  for (const Json& message : *request.messages) {
    const auto calls = message.find("tool_calls");
    if (calls != message.end() && calls->is_array())
      num_calls += static_cast<int64_t>(calls->size());
  }
  return num_calls;
}

}  // namespace

Json ParseContextJson(const ChatRequest& request, const JsonDocument& defaults) {
  const auto or_null = [](const JsonDocument& value) {
    return value.is_null() ? Json(nullptr) : *value;
  };
  Json choice = or_null(request.tool_choice);
  if (choice.is_null()) choice = request.tools.is_null() ? "none" : "auto";
  return {{"tools", or_null(request.tools)},
          {"tool_choice", std::move(choice)},
          {"parallel_tool_calls", request.parallel_tool_calls},
          {"include_reasoning", request.include_reasoning},
          {"chat_template_kwargs", *TemplateVariables(request, defaults)},
          {kHistory, NumCalls(request)}};
}

StatusOr<ChatRequest> ChatOfParseContext(const Json& context) {
  Json body = {{"messages", Json::array({{{"role", "user"}, {"content", ""}}})}};
  for (const auto& [name, value] : context.items()) {
    if (name == kHistory) continue;
    if (std::find(std::begin(kContextFields), std::end(kContextFields), name) ==
        std::end(kContextFields)) {
      return Refuse("parse_context", "parse_context has the unknown field " + Shorten(name) +
                                         "; the server that rendered the request is newer");
    }
    body[name] = value;
  }
  // Without tools there is nothing to choose, which vLLM's render writes all the same. A tool that
  // is named stays: there is none of its name.
  if (body.value("tools", Json()).empty()) {
    body.erase("tools");
    if (body.value("tool_choice", Json()).is_string()) body.erase("tool_choice");
  }
  auto chat = ParseChatRequest(std::move(body));
  if (!chat.ok()) return Status(chat.status()).WithParam("parse_context");
  return chat;
}

}  // namespace tandem
