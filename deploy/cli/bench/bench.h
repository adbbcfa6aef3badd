#pragma once

// `tandem bench <what>`: measures servers. One row per subcommand in bench.cc; each has its own
// flags and --help. Returns the exit status; 2 for a bad command line.

#include <string>
#include <vector>

namespace tandem {

int RunBench(const std::vector<std::string>& args);

}  // namespace tandem
