#pragma once

// `tandem serve MODEL [flags]`: one command line for both processes. Each flag goes to the process
// whose table has it (or to both); vLLM's flags that mean nothing here are accepted with a
// warning; any other is an error with a near-match hint. Returns the exit status: 0 after SIGTERM,
// 2 for a bad command line, else what the process that failed returned.

#include <string>
#include <vector>

namespace tandem {

int RunServe(const std::vector<std::string>& args);

}  // namespace tandem
