#pragma once

// `tandem swap [flags]` and `tandem reload [flags]`: a running `tandem serve` starts another engine
// core, or another frontend, with the flags that it has now but those given here, and lets it take
// over. Requests move to the new engine core without a pause that their clients would see as more
// than a slow token; the frontend before ends its connections, and new ones are the new one's.
// Waits until the process before has left. Returns the exit status: 0 when the new process serves;
// otherwise the old one still does: 2 for a bad command line, what the new process ended with if it
// did not start, 1 for everything else.

#include <string>
#include <vector>

namespace tandem {

int RunSwap(const std::vector<std::string>& args);
int RunReload(const std::vector<std::string>& args);

}  // namespace tandem
