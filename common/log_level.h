#pragma once

// The level that InitLog has set, and its names. Any thread.

#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

// Changes it while the process runs. INVALID_ARGUMENT: the text is no level.
Status SetLogLevel(std::string_view level);

// What a flag may give: Python's names too, whose CRITICAL is ERROR here.
const std::vector<std::string_view>& LogLevelNames();

}  // namespace tandem
