#include "engine_core/run_replay.h"

#include <memory>
#include <utility>

#include "common/exit_status.h"
#include "common/log.h"
#include "common/strings.h"
#include "engine_core/config.h"
#include "engine_core/flight_about.h"
#include "engine_core/load_runner.h"
#include "engine_core/models/registry.h"
#include "engine_core/recorder/flight_file.h"
#include "engine_core/replay.h"
#include "engine_core/replayed_executor.h"

namespace tandem {
namespace {

int Fail(ExitStatus exit_status, const Status& status) {
  LOG_ERROR << "[replay] " << status.message();
  return exit_status;
}

// What the recorded engine had found out about its host; the model needs room for spare blocks.
void TakeOver(const FlightAbout& about, EngineSetup* setup) {
  ExecutorLimits& limits = setup->runner.limits;
  limits.max_model_len = static_cast<int32_t>(about.max_model_len);
  limits.num_blocks = static_cast<int32_t>(about.num_blocks);
  setup->auto_max_model_len = false;
  if (limits.images) limits.images->lack_pixels = true;
  setup->engine.kv_cache.hash_seed = about.kv_hash_seed;
  setup->kv_cache.num_blocks = about.num_blocks + ReplayedExecutor::NumSpareBlocks(limits);
}

int ReportReplay(const ReplayConfig& config, const StatusOr<ReplayResult>& result) {
  if (!result.ok()) return Fail(kExitBadFlags, result.status());
  LOG_INFO << "[replay] steps " << result->first_step << " to " << result->last_step << ", "
           << WithCommas(result->num_compared_tokens) << " tokens computed again and equal; "
           << result->end;
  if (config.until_step > 0 || result->difference) LOG_INFO << "[replay] " << result->state;
  return result->difference ? kExitFailed : kExitOk;
}

int ReplayWith(const EngineConfig& config, const ReplayConfig& replay, const FlightFile& file,
               const FlightAbout& about, StartupLog* startup) {
  const StatusOr<ModelConfig> model_config = ReadModelConfig(config.model, config.hf_overrides);
  if (!model_config.ok()) return Fail(kExitBadModel, model_config.status());
  StatusOr<EngineSetup> setup = MakeSetup(config, *model_config);
  if (!setup.ok()) return Fail(kExitBadFlags, setup.status());
  if (setup->kv_transfer.connector != KvTransferConfig::Connector::kNone) {
    return Fail(kExitBadFlags, InvalidArgumentError("--kv-transfer-config and --kv-offloading-size "
                                                    "are not built for replays"));
  }
  // One rank computes the same bits; the steps in flight stay those of the pipeline.
  setup->ranks = {};
  setup->splits_experts = false;
  TakeOver(about, &*setup);
  ReplayOptions options = {.engine = setup->engine,
                           .limits = setup->runner.limits,
                           .grammars = setup->grammars.defaults,
                           .until_step = replay.until_step,
                           .from_first = replay.from == "first"};
  if (replay.tokens == "recorded" || (replay.tokens == "auto" && about.device == "cuda")) {
    return ReportReplay(replay, Replay(file, options));
  }
  const StatusOr<LoadedRunner> loaded = LoadRunner(config, *model_config, &*setup, startup);
  if (!loaded.ok()) return Fail(kExitBadModel, loaded.status());
  options.model = loaded->runner.get();
  const AdapterReader* reader = loaded->adapter_reader.get();
  if (reader != nullptr) {
    options.adapters = [reader](const Adapter& recorded) -> StatusOr<SharedAdapter> {
      ASSIGN_OR_RETURN(ReadAdapter adapter, reader->Read(recorded.name, recorded.path));
      if (adapter.digest == recorded.digest) return std::move(adapter.weights);
      return FailedPreconditionError("the adapter in " + recorded.path +
                                     " is not what it was when this was recorded");
    };
  }
  const std::string backend(loaded->runner->backend().description());
  if (backend != about.backend) {
    LOG_WARNING << "[replay] recorded on " << about.backend << ", this is " << backend
                << ": bits may differ";
  }
  return ReportReplay(replay, Replay(file, options));
}

void Announce(const ReplayConfig& replay, const FlightFile& file, const FlightAbout& about) {
  LOG_INFO << "[replay] " << replay.file << ": Tandem " << about.tandem_version << ", build "
           << about.build_id << ", pid " << about.pid << ", on " << about.backend
           << "; written for: " << file.reason;
  if (about.build_id != OwnBuildId()) {
    LOG_WARNING << "[replay] this program is build " << OwnBuildId();
  }
  std::string steps;
  for (const int64_t step : CheckpointSteps(file)) steps += " " + std::to_string(step);
  LOG_INFO << "[replay] checkpoints after steps" << steps;
}

}  // namespace

int RunReplay(const ReplayConfig& replay, const std::vector<std::string>& args,
              StartupLog* startup) {
  const StatusOr<FlightFile> file = ReadFlightFile(replay.file);
  if (!file.ok()) return Fail(kExitBadFlags, file.status());
  const StatusOr<FlightAbout> about = ParseFlightAbout(file->about);
  if (!about.ok()) return Fail(kExitBadFlags, about.status().WithContext(replay.file));
  EngineConfig config;
  ReplayConfig known_already;
  std::vector<Flag> flags = EngineFlags(config);
  for (Flag& flag : ReplayFlags(known_already)) flags.push_back(std::move(flag));
  std::vector<std::string> all = about->flags;
  all.push_back("--device=" + about->device);
  all.insert(all.end(), args.begin(), args.end());
  const StatusOr<FlagOutcome> parsed = ParseFlags(flags, all, "");
  if (!parsed.ok()) return Fail(kExitBadFlags, parsed.status());
  Announce(replay, *file, *about);
  return ReplayWith(config, replay, *file, *about, startup);
}

}  // namespace tandem
