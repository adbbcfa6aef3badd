#pragma once

// `tandem swap [flags]`: a running `tandem serve` starts another engine core, with the flags that
// it has now but those given here, and lets it take over; requests move without a pause that their
// clients would see as more than a slow token. Waits until the engine before has left. Returns the
// exit status: 0 when the new engine serves; otherwise the old one still does: 2 for a bad command
// line, what the new engine ended with if it did not start, 1 for everything else.

#include <string>
#include <vector>

namespace tandem {

int RunSwap(const std::vector<std::string>& args);

}  // namespace tandem
