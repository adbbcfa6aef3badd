#pragma once

// What each program of ours does before anything else. Thread: main, before others start.

namespace tandem {

// Opens the standard files (standard_files.h) and ensures stacks of the usual size (stack_size.h).
// False: the program cannot run; the reason is on stderr.
bool StartProgram(const char* name);

}  // namespace tandem
