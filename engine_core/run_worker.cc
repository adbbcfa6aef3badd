#include "engine_core/run_worker.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/log_format.h"
#include "common/log_thread.h"
#include "common/packets.h"
#include "common/strings.h"
#include "engine_core/adapters/adapter_loader.h"
#include "engine_core/config.h"
#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/executor/rank_adapters.h"
#include "engine_core/executor/standstill.h"
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

struct LoadedWorker {
  std::unique_ptr<RankGroup> group;
  // With adapters, else null.
  std::unique_ptr<AdapterSites> adapter_sites;
  std::unique_ptr<RankAdapters> adapters;
  std::unique_ptr<RankRunner> runner;
  std::unique_ptr<AdapterReader> adapter_reader;
  std::unique_ptr<AdapterLoader> adapter_loader;
  // Of a rank without a device of its own, else null.
  std::unique_ptr<StandstillWatch> standstill;
};

// On the loader's thread.
void TakeAdapter(const AdapterLoaded& loaded, RankAdapters* adapters) {
  if (loaded.status.ok()) adapters->Add(loaded.id, loaded.weights);
  (void)SendPacket(kWorkerSocket, PackAdapter({.status = loaded.status, .digest = loaded.digest}));
}

Status Obey(const Packet& packet, LoadedWorker* worker, RankLine* line) {
  ASSIGN_OR_RETURN(const WorkerOrder order, UnpackOrder(packet.bytes));
  const auto id = static_cast<AdapterId>(order.adapter);
  switch (order.kind) {
    case WorkerOrder::Kind::kPing:
      if (worker->standstill != nullptr) {
        const Standstill found = worker->standstill->Look(line->step.load());
        line->num_still_looks.store(found.num_looks);
        line->awaits_ranks.store(found.awaits_ranks);
      }
      line->pong.store(line->ping.load());
      break;
    case WorkerOrder::Kind::kModules: {
      if (packet.fds.empty()) return InternalError("an order between ranks lacks its file");
      ASSIGN_OR_RETURN(const AdaptableModules modules, UnpackModules(packet.fds[0].get()));
      worker->adapter_reader->AddModules(modules);
      break;
    }
    case WorkerOrder::Kind::kReadAdapter:
      worker->adapter_loader->Start({.id = id, .name = order.name, .folder = order.folder});
      break;
    case WorkerOrder::Kind::kDropAdapter:
      worker->adapters->Remove(id);
      break;
  }
  return OkStatus();
}

// Follows the engine core's orders until it has gone.
void FollowOrders(LoadedWorker* worker, RankLine* line) {
  SetThreadName("worker-orders");
  for (;;) {
    const StatusOr<Packet> packet = ReceivePacket(kWorkerSocket);
    if (!packet.ok()) ExitAfterLog(kExitOk);
    const Status obeyed = Obey(*packet, worker, line);
    CHECK(obeyed.ok()) << obeyed.message();
  }
}

void ServeAdapters(const EngineSetup& setup, LoadedWorker* worker) {
  worker->adapters = std::make_unique<RankAdapters>();
  worker->runner->SetAdapters(worker->adapters.get());
  worker->adapter_reader = std::make_unique<AdapterReader>(
      worker->adapter_sites.get(), &worker->runner->backend(), setup.max_lora_rank);
  worker->adapter_loader = std::make_unique<AdapterLoader>(
      worker->adapter_reader.get(),
      [adapters = worker->adapters.get()](AdapterLoaded loaded) { TakeAdapter(loaded, adapters); });
}

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
  ASSIGN_OR_RETURN(worker.group, RankGroup::Open(UniqueFd(kWorkerMemory), rank));
  // The engine core chose these before it knew max_model_len, where that is auto.
  setup.runner.limits.groups = worker.group->shape().groups;
  setup.runner.limits.block_size = worker.group->shape().block_size;
  if (setup.max_lora_rank > 0) worker.adapter_sites = std::make_unique<AdapterSites>();
  ASSIGN_OR_RETURN(worker.runner, LoadRank(config, model, setup, worker.group.get(),
                                           worker.adapter_sites.get(), startup));
  if (setup.max_lora_rank > 0) ServeAdapters(setup, &worker);
  if (worker.runner->backend().device().memory_is_host()) {
    worker.standstill = std::make_unique<StandstillWatch>(&worker.group->lines()[rank].wait);
  }
  return worker;
}

// With adapters, the modules that this rank has go along.
Status SendReady(const WorkerReady& ready, const AdapterSites* sites) {
  UniqueFd modules;
  if (sites != nullptr) {
    ASSIGN_OR_RETURN(modules, PackModules(ModulesOf(*sites)));
  }
  const int fds[] = {modules.get()};
  return SendPacket(kWorkerSocket, PackReady(ready), std::span(fds, sites == nullptr ? 0 : 1));
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
  StatusOr<LoadedWorker> worker = LoadWorker(rank, flags, startup);
  if (!worker.ok()) return Fail(worker.status());
  RankGroup* group = worker->group.get();
  const WorkerReady ready = {.status = OkStatus(),
                             .resident_bytes = ReadHostMemory().resident_bytes,
                             .memory_end = group->communicator()->end()};
  if (!SendReady(ready, worker->adapter_sites.get()).ok()) return kExitOk;
  std::thread(FollowOrders, &*worker, &group->lines()[rank]).detach();
  const Status end = worker->runner->Run();
  if (!end.ok()) LOG_ERROR << end.message();
  ExitAfterLog(end.ok() ? kExitOk : kExitFailed);  // the other threads read what is here
}

}  // namespace tandem
