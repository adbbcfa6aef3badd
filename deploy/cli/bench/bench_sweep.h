#pragma once

// `tandem bench sweep serve`: crosses settings of a server with settings of a bench. Each server
// configuration is started once, waited for, loaded with each bench configuration a few times, and
// ended with its process group, also on SIGINT, SIGTERM and failure. Under
// OUTPUT_DIR/EXPERIMENT_NAME lie one JSON per run, the logs, and summary.json and summary.csv.
// `tandem bench sweep plot` is `tandem bench plot`. Returns the exit status: 0; 1 when a run
// failed; 2 for a bad command line; 130 when interrupted.

#include <string>
#include <vector>

namespace tandem {

int RunBenchSweep(const std::vector<std::string>& args);

}  // namespace tandem
