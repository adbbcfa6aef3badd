#pragma once

// How a command of `tandem` ends when it cannot do what it was asked for. Thread: main.

#include <string_view>

#include "common/status.h"

namespace tandem {

// Prints "tandem COMMAND: why" to stderr. Returns exit_status (common/exit_status.h).
int ReportFailure(std::string_view command, const Status& why, int exit_status);
// The same, with the status of a wrong command line where the reason is INVALID_ARGUMENT.
int ReportFailure(std::string_view command, const Status& why);

}  // namespace tandem
