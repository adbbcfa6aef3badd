#pragma once

// Stacks of the size that programs are written for, whatever the limit (`ulimit -s`) they are
// started with: threads would have stacks of that size, too. Thread: main, before others start.

#include "common/status.h"

namespace tandem {

// FAILED_PRECONDITION: the main thread's stack is limited to less than it needs.
Status EnsureStackSize();

}  // namespace tandem
