#include "frontend/chat/named_templates.h"

namespace tandem {

StatusOr<TemplateSources> ChooseTemplates(const std::map<std::string, std::string>& named) {
  TemplateSources sources;
  const auto source = [&](const char* name) {
    const auto it = named.find(name);
    return it == named.end() ? std::string() : it->second;
  };
  if (named.size() == 1) {
    sources.chat = named.begin()->second;
    return sources;
  }
  sources.chat = source("default");
  sources.with_tools = source("tool_use");
  if (!sources.chat.empty() || named.empty()) return sources;
  std::string names;
  for (const auto& [name, text] : named) names += (names.empty() ? "" : ", ") + name;
  return InvalidArgumentError(
      "the model has several chat templates and none named default; --chat-template NAME chooses "
      "one of: " +
      names);
}

}  // namespace tandem
