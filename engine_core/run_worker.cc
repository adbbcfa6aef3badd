#include "engine_core/run_worker.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "common/exit_status.h"
#include "common/log.h"
#include "common/log_format.h"
#include "common/log_thread.h"
#include "common/packets.h"
#include "common/strings.h"
#include "engine_core/config.h"
#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/load_runner.h"
#include "engine_core/models/registry.h"
#include "engine_core/workers/cpu_bind.h"
#include "engine_core/workers/worker_processes.h"
#include "engine_core/workers/worker_socket.h"

namespace tandem {
namespace {

// Signals that reach all processes of a terminal or a control group are the engine core's business:
// it may still finish requests. It has closed its socket when it has ended.
void LeaveSignalsToTheEngine() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
}

// Answers pings until the engine has gone.
void AnswerPings(RankLine* line) {
  SetThreadName("worker-pings");
  while (ReceivePacket(kWorkerSocket).ok()) line->pong.store(line->ping.load());
  ExitAfterLog(kExitOk);
}

struct LoadedWorker {
  std::unique_ptr<RankGroup> group;
  std::unique_ptr<RankRunner> runner;
};

StatusOr<LoadedWorker> LoadWorker(int rank, const std::vector<std::string>& flags,
                                  StartupLog* startup) {
  EngineConfig config;
  ASSIGN_OR_RETURN([[maybe_unused]] const FlagOutcome outcome,
                   ParseFlags(EngineFlags(config), flags, ""));
  const RankCounts counts = RankCountsOf(config);
  if (rank < 0 || rank >= counts.num_ranks() || rank == counts.output_rank()) {
    return InvalidArgumentError(kWorkerRankArgument + std::to_string(rank) +
                                ": a worker is started by its engine core, not by hand");
  }
  RETURN_IF_ERROR(InitLog("Worker_" + RankName(counts, rank), config.log_level));
  RETURN_IF_ERROR(SetLogFormat(config.log_format));
  StartLogThread();
  SetThreadName("tandem-" + RankName(counts, rank));
  ASSIGN_OR_RETURN(const auto cpus, ParseCpuBind(config.cpu_bind, counts.num_ranks()));
  if (!cpus.empty()) RETURN_IF_ERROR(BindToCpus(cpus[static_cast<size_t>(rank)]));
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(config.model, config.hf_overrides));
  ASSIGN_OR_RETURN(EngineSetup setup, MakeSetup(config, model));
  LoadedWorker worker;
  ASSIGN_OR_RETURN(worker.group,
                   RankGroup::Open(UniqueFd(kWorkerMemory), GroupShapeOf(setup, model), rank));
  ASSIGN_OR_RETURN(worker.runner, LoadRank(config, model, setup, worker.group.get(), startup));
  return worker;
}

int Fail(const Status& status) {
  LOG_ERROR << status.message();
  (void)SendPacket(kWorkerSocket, PackReady({.status = status}));
  return kExitBadModel;
}

}  // namespace

std::optional<int> WorkerRankOf(const std::vector<std::string>& args) {
  const std::string_view name = kWorkerRankArgument;
  if (args.empty() || !args[0].starts_with(name)) return std::nullopt;
  return ParseNumber<int>(std::string_view(args[0]).substr(name.size())).value_or(-1);
}

int RunWorker(int rank, const std::vector<std::string>& flags, StartupLog* startup) {
  LeaveSignalsToTheEngine();
  // Where the engine has ended before this, the socket shows it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const StatusOr<LoadedWorker> worker = LoadWorker(rank, flags, startup);
  if (!worker.ok()) return Fail(worker.status());
  RankGroup* group = worker->group.get();
  const WorkerReady ready = {.status = OkStatus(),
                             .resident_bytes = ReadHostMemory().resident_bytes,
                             .memory_end = group->communicator()->end()};
  if (!SendPacket(kWorkerSocket, PackReady(ready)).ok()) return kExitOk;
  std::thread(AnswerPings, &group->lines()[rank]).detach();
  const Status end = worker->runner->Run();
  if (!end.ok()) LOG_ERROR << end.message();
  ExitAfterLog(end.ok() ? kExitOk : kExitFailed);  // the pings' thread reads the group's memory
}

}  // namespace tandem
