#pragma once

// `tandem bench tune MODEL`: finds the flags of `tandem serve` that give the most tokens per second
// within limits on latency. For each candidate a server is started, its best load is searched (see
// load_search.h), and the server is ended, also on SIGINT and SIGTERM. Prints each trial, a table
// of candidates and the command line of the best. Returns the exit status: 0; 1 when no candidate
// keeps the limits or none could be measured; 2 for a bad command line; 130 when interrupted (after
// printing the table of what was found).

#include <string>
#include <vector>

namespace tandem {

int RunBenchTune(const std::vector<std::string>& args);

}  // namespace tandem
