#pragma once

// How a process of ours ends that cannot do its work: the reason as an ERROR line of the log, and
// as what systemd and the commands that asked for the process show. Thread: main.

#include "common/exit_status.h"
#include "common/status.h"

namespace tandem {

// Returns exit_status.
int FailProcess(ExitStatus exit_status, const Status& why);

}  // namespace tandem
