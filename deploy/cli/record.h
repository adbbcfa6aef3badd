#pragma once

// `tandem record`: copies the flight recorder of a running engine core into a file. The ring lies
// in an anonymous file of the engine's process, so it is copied without asking the process: also
// from one that hangs or is stopped. Thread: main. Returns the exit status.

#include <string>
#include <vector>

namespace tandem {

int RunRecord(const std::vector<std::string>& args);

}  // namespace tandem
