#pragma once

// Which of a model's chat templates, by their names, render its chats. Pure; any thread.

#include <map>
#include <string>

#include "common/status.h"

namespace tandem {

struct TemplateSources {
  std::string chat;        // empty: the model has none
  std::string with_tools;  // of chats that show tools; empty: the same
};

// As transformers chooses: "default", and "tool_use" where tools are shown. Without a default the
// only template is used; several others are an InvalidArgument that names them.
StatusOr<TemplateSources> ChooseTemplates(const std::map<std::string, std::string>& named);

}  // namespace tandem
