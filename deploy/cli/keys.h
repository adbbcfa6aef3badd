#pragma once

// `tandem keys FOLDER`: makes the keys of --tcp-keys. Thread: main.

#include <string>
#include <vector>

namespace tandem {

// Returns the exit status for main.
int RunKeys(const std::vector<std::string>& args);

}  // namespace tandem
