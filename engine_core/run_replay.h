#pragma once

// `tandem-engine-core --replay FILE`: loads what the recorded process had loaded, replays it and
// logs what differs. Thread: main. Returns the exit status: 0 all is equal, 1 something differs, 2
// and 3 as for a start.

#include <string>
#include <vector>

#include "engine_core/flags/replay_flags.h"
#include "engine_core/startup_log.h"

namespace tandem {

// args: the command line, whose engine flags take the place of those of the recorded process.
int RunReplay(const ReplayConfig& replay, const std::vector<std::string>& args,
              StartupLog* startup);

}  // namespace tandem
