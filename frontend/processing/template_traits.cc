#include "frontend/processing/template_traits.h"

#include <nlohmann/json.hpp>

#include "frontend/processing/input_processor.h"

namespace tandem {
namespace {

StatusOr<std::string> Render(const InputProcessor& processor, Json body) {
  ASSIGN_OR_RETURN(ChatRequest request, ParseChatRequest(std::move(body)));
  return processor.RenderChat(request);
}

// Templates that want it first either refuse a later one or leave it out.
bool TakesSystemAnywhere(const InputProcessor& processor) {
  constexpr const char* kRule = "be brief";
  const Json messages = {{{"role", "user"}, {"content", "a"}},
                         {{"role", "assistant"}, {"content", "b"}},
                         {{"role", "system"}, {"content", kRule}},
                         {{"role", "user"}, {"content", "c"}}};
  const auto text = Render(processor, {{"messages", messages}});
  return text.ok() && text->find(kRule) != std::string::npos;
}

bool HeedsEffortNone(const InputProcessor& processor) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "a"}}});
  const auto plain = Render(processor, {{"messages", messages}});
  const auto none = Render(processor, {{"messages", messages}, {"reasoning_effort", "none"}});
  return none.ok() && (!plain.ok() || *plain != *none);
}

}  // namespace

TemplateTraits ProbeTemplate(const InputProcessor& processor) {
  TemplateTraits traits;
  traits.system_anywhere = TakesSystemAnywhere(processor);
  const std::string& configured = processor.config().anthropic_disabled_thinking_effort;
  if (configured != "auto") {
    traits.effort_without_thinking = configured;
  } else if (processor.config().parsers.is_harmony || !HeedsEffortNone(processor)) {
    traits.effort_without_thinking = "low";
  }
  return traits;
}

}  // namespace tandem
