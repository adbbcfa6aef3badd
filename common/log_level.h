#pragma once

// Changes the level that InitLog has set, while the process runs. Any thread.
// INVALID_ARGUMENT: the text is no level.

#include <string_view>

#include "common/status.h"

namespace tandem {

Status SetLogLevel(std::string_view level);

}  // namespace tandem
