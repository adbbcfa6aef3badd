#pragma once

// From the engine's settings to a model that runs: the device, its memory, the packed weights and
// the KV cache. Thread: main, before others start. Failure: what is wrong with the device, the
// checkpoint or the memory, with advice about memory.

#include <cstdint>
#include <memory>

#include "common/status.h"
#include "engine_core/adapters/adapter_reader.h"
#include "engine_core/config.h"
#include "engine_core/executor/model_runner.h"
#include "engine_core/executor/rank_group.h"
#include "engine_core/executor/rank_runner.h"
#include "engine_core/packed_check.h"
#include "engine_core/startup_log.h"
#include "engine_core/workers/worker_processes.h"

namespace tandem {

struct LoadedRunner {
  // Of a model that several ranks run; else null.
  std::unique_ptr<RankGroup> ranks;
  std::unique_ptr<WorkerProcesses> workers;
  // With adapters, else null: the matrices of the model that they may change, and their reader.
  std::unique_ptr<AdapterSites> adapter_sites;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<AdapterReader> adapter_reader;
  HostMemory memory;  // before anything was allocated

  // Adds what the operator can do about too little memory.
  Status WithAdvice(const Status& status, const EngineSetup& setup) const {
    return WithMemoryAdvice(status, *setup.memory_plan, memory);
  }
};

// Completes the setup by what depends on memory. Starts the processes of the other ranks; on_lost
// is called where one is lost while ranks with devices join. packed_check: outlives the runner;
// null: packed files are not checked.
StatusOr<LoadedRunner> LoadRunner(const EngineConfig& config, const ModelConfig& model_config,
                                  EngineSetup* setup, StartupLog* startup,
                                  WorkerProcesses::OnLost on_lost = {},
                                  PackedCheck* packed_check = nullptr);

// The part of another rank, in that rank's process; `setup` is as LoadRunner had it when it started
// the process. adapter_sites: filled; null: there are no adapters.
StatusOr<std::unique_ptr<RankRunner>> LoadRank(const EngineConfig& config,
                                               const ModelConfig& model_config,
                                               const EngineSetup& setup, RankGroup* group,
                                               AdapterSites* adapter_sites, StartupLog* startup);

struct CacheSize {
  int64_t tokens = 0;          // of requests of any length; with local groups, of the longest
  double max_concurrency = 0;  // requests of max_model_len tokens
};
CacheSize SizeOf(const ExecutorLimits& limits);

}  // namespace tandem
