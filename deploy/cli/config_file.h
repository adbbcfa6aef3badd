#pragma once

// A YAML file of flags, as `vllm serve --config` reads: one mapping whose keys are flag names (with
// "_" or "-") and whose values are numbers, texts, true or false, lists, or mappings for flags that
// take JSON. null means "not given". Pure but for reading the file; thread: main.
// Failure: INVALID_ARGUMENT with the file, the line and what is wrong; an unknown key is refused
// with the nearest flag.

#include <string>
#include <vector>

#include "common/flags.h"
#include "common/status.h"

namespace tandem {

struct ConfigEntry {
  std::vector<std::string> words;  // "--name=value", of a list one for each item
  std::string origin;              // "serve.yaml:3"
};

StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path,
                                                  const std::vector<Flag>& flags);
// The same of a text; `name` is for messages.
StatusOr<std::vector<ConfigEntry>> ParseConfigFile(const std::string& text, const std::string& name,
                                                   const std::vector<Flag>& flags);

}  // namespace tandem
