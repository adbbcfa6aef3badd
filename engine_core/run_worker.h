#pragma once

// The engine core's program in the role of a worker: a rank of the engine that has started it
// (engine_core/workers/worker_processes.h). Loads its part of the model, reports that, and runs
// steps until that engine ends.
// Thread: main; a second one answers pings. Failure: an exit status (common/exit_status.h) and the
// reason, to the engine.

#include <optional>
#include <string>
#include <vector>

#include "engine_core/startup_log.h"

namespace tandem {

// The rank, where the first argument gives one.
std::optional<int> WorkerRankOf(const std::vector<std::string>& args);

// `flags`: the engine core's.
int RunWorker(int rank, const std::vector<std::string>& flags, StartupLog* startup);

}  // namespace tandem
