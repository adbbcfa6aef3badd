#include "engine_core/engine_flight.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "common/version.h"
#include "engine_core/flight_about.h"

namespace tandem {
namespace {

// A checkpoint of a full cache: the hash of each block, and the tokens in it. It must fit into an
// eighth of the ring, with room for requests that wait.
int64_t DefaultRingBytes(const ExecutorLimits& limits) {
  const int64_t bytes_per_block = 40 + 3 * int64_t{limits.block_size};
  return std::max(int64_t{32} << 20, 12 * bytes_per_block * limits.num_blocks);
}

std::string DescribeFlight(EngineConfig config, const EngineSetup& setup,
                           const std::string& backend, double unix_time) {
  FlightAbout about;
  about.tandem_version = kVersion;
  about.build_id = OwnBuildId();
  about.pid = getpid();
  about.unix_time = unix_time;
  about.flags = ToArguments(EngineFlags(config));
  about.device = setup.device;
  about.backend = backend;
  about.num_blocks = setup.runner.limits.num_blocks;
  about.max_model_len = setup.runner.limits.max_model_len;
  about.kv_hash_seed = setup.engine.kv_cache.hash_seed;
  return about.ToJson();
}

}  // namespace

StatusOr<std::unique_ptr<EngineFlight>> EngineFlight::Start(EngineConfig config,
                                                            const EngineSetup& setup,
                                                            const std::string& backend,
                                                            const Clock* clock, Executor* executor,
                                                            RequestGrammars* grammars) {
  const auto size = static_cast<size_t>(
      config.flight_recorder_size.value_or(DefaultRingBytes(setup.runner.limits)));
  const std::string path = FlightFolder::Choose(config.flight_recorder_dir);
  ASSIGN_OR_RETURN(
      FlightRing ring,
      FlightRing::Create(size, DescribeFlight(std::move(config), setup, backend, clock->Unix())));
  std::unique_ptr<EngineFlight> flight(
      new EngineFlight(std::move(ring), clock, executor, grammars));
  StatusOr<std::unique_ptr<FlightFolder>> folder =
      FlightFolder::Open(path, clock->Unix(), &flight->ring_);
  if (folder.ok()) {
    flight->folder_ = *std::move(folder);
    flight->folder_->CatchFatalSignals();
  } else {
    LOG_WARNING << "[flight recorder] no files will be written: " << folder.status().message();
  }
  return flight;
}

EngineFlight::EngineFlight(FlightRing ring, const Clock* clock, Executor* executor,
                           RequestGrammars* grammars)
    : ring_(std::move(ring)),
      recorder_(&ring_),
      clock_(clock, &recorder_),
      executor_(executor, &recorder_),
      grammars_(grammars, &recorder_) {}

void EngineFlight::Write(const std::string& reason) {
  if (folder_ == nullptr) return;
  const StatusOr<std::string> path = folder_->Write(reason);
  if (path.ok()) {
    LOG_INFO << "[flight recorder] written to " << *path;
  } else {
    LOG_WARNING << "[flight recorder] not written: " << path.status().message();
  }
}

}  // namespace tandem
