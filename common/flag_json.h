#pragma once

// A flag table as JSON, for what is made of it: man pages and shell completion. Every command
// prints its own for `--help=@json`. Pure; any thread.
// {"about": …, "flags": [{"name", "short", "type": bool|int|float|text|texts, "default", "choices",
//  "env", "positional", "help"}]}; default is "" where there is none.

#include <string>
#include <string_view>
#include <vector>

#include "common/flags.h"

namespace tandem {

constexpr std::string_view kJsonHelp = "@json";

std::string FlagTableJson(const std::vector<Flag>& flags, std::string_view about);

}  // namespace tandem
