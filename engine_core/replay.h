#pragma once

// Runs a recorded flight again: an engine is loaded from a checkpoint and given everything that the
// recorded one was given, in the same order. Each step's schedule and each token is compared. With
// a model the tokens are computed again, which on the CPU gives the recorded bits, and a fault of
// the recorded process happens again; without one, as for recordings of a GPU, they are those
// recorded. Tokens under a grammar are always taken from the recording, because grammars do not run
// in a replay.
// Thread: any one; nothing else runs. Failure: DATA_LOSS for a broken recording,
// FAILED_PRECONDITION for one that has no checkpoint to begin with; a difference is a result.

#include <cstdint>
#include <optional>
#include <string>

#include "common/status.h"
#include "engine_core/engine_core.h"
#include "engine_core/executor/executor.h"
#include "engine_core/recorder/flight_file.h"
#include "engine_core/replayed_executor.h"

namespace tandem {

struct ReplayOptions {
  // Of the recorded engine; grammars and kv_connector are not read.
  EngineCoreOptions engine;
  ExecutorLimits limits;
  GrammarDefaults grammars;
  Executor* model = nullptr;  // see ReplayedExecutor
  ReplayedExecutor::AdapterSource adapters = {};
  int64_t until_step = 0;   // ends before this step; 0: with the recording
  bool from_first = false;  // at the oldest checkpoint, else at the nearest one before the end
};

struct ReplayResult {
  int64_t first_step = 0;  // after the checkpoint
  int64_t last_step = 0;   // submitted; first_step - 1: none
  int64_t num_turns = 0;
  int64_t num_compared_tokens = 0;  // those computed again
  std::optional<std::string> difference;
  std::string end;    // why the replay ended
  std::string state;  // requests and blocks at the end
};

StatusOr<ReplayResult> Replay(const FlightFile& file, const ReplayOptions& options);

// The steps after which a replay can begin, ascending.
std::vector<int64_t> CheckpointSteps(const FlightFile& file);

}  // namespace tandem
