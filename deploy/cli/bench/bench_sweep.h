#pragma once

// `tandem bench sweep serve`: runs every combination of server and bench settings. Each server
// configuration is started once, loaded with each bench configuration a few times once it is ready,
// and ended with its process group, also on SIGINT, SIGTERM and failure. OUTPUT_DIR/EXPERIMENT_NAME
// then has one JSON per run, the logs, summary.json and summary.csv. `tandem bench sweep plot` is
// `tandem bench plot`. Returns the exit status: 0; 1 when a run failed; 2 for a bad command line;
// 130 when interrupted.

#include <string>
#include <vector>

namespace tandem {

int RunBenchSweep(const std::vector<std::string>& args);

}  // namespace tandem
