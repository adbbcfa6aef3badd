#pragma once

// What other APIs need to know of a chat template before they turn their requests into chats. Found
// by rendering small conversations once, at start. A value; any thread.

#include <string>

namespace tandem {

class InputProcessor;

struct TemplateTraits {
  bool system_anywhere = true;  // a system message need not come first
  // The reasoning effort that stands for "do not think": "none", or "low" where the template
  // refuses "none" or renders it like no effort at all.
  std::string effort_without_thinking = "none";
};

TemplateTraits ProbeTemplate(const InputProcessor& processor);

}  // namespace tandem
