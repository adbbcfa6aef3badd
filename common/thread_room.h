#pragma once

// Whether a process may start the threads that it needs. Found out before it starts them, because a
// thread that cannot be started ends the process where it happens, in libraries without a reason.
// Thread: main.

#include "common/status.h"

namespace tandem {

// RESOURCE_EXHAUSTED: fewer can be started now; the message names the limits.
Status CheckThreadRoom(int num_threads);

}  // namespace tandem
