#include "engine_core/workers/worker_processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>

#include "common/log.h"
#include "common/packets.h"
#include "common/spawn.h"
#include "engine_core/executor/watched_executor.h"

namespace tandem {
namespace {

constexpr int kEndMs = 2000;  // for a worker to end by itself

bool WaitFor(int fd, int timeout_ms) {
  pollfd waited = {fd, POLLIN, 0};
  int count = 0;
  while ((count = poll(&waited, 1, timeout_ms)) < 0 && errno == EINTR) {
  }
  return count > 0;
}

}  // namespace

std::string RankName(const RankCounts& counts, int rank) {
  const RankPlace place = counts.PlaceOf(rank);
  std::string name;
  if (counts.pipeline > 1) name = "PP" + std::to_string(place.stage.rank);
  if (counts.tensor > 1) {
    name += (name.empty() ? "TP" : "_TP") + std::to_string(place.share.rank);
  }
  return name;
}

StatusOr<std::unique_ptr<WorkerProcesses>> WorkerProcesses::Start(
    const std::vector<std::string>& flags, RankGroup* group) {
  std::unique_ptr<WorkerProcesses> processes(new WorkerProcesses(group));
  processes->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!processes->stop_) return ErrnoError(errno, "eventfd");
  for (int rank = 0; rank < group->counts().num_ranks(); ++rank) {
    if (rank != group->rank()) RETURN_IF_ERROR(processes->StartOne(rank, flags));
  }
  return processes;
}

Status WorkerProcesses::StartOne(int rank, const std::vector<std::string>& flags) {
  ASSIGN_OR_RETURN(auto sockets, MakePacketSockets());
  std::vector<std::string> argv = {OwnProgramPath(), kWorkerRankArgument + std::to_string(rank)};
  argv.insert(argv.end(), flags.begin(), flags.end());
  const int fds[] = {sockets.second.get(), group_->file()};
  static_assert(kWorkerSocket == kFirstSpawnedFd && kWorkerMemory == kFirstSpawnedFd + 1);
  Worker& worker = workers_.emplace_back();
  worker.rank = rank;
  worker.socket = std::move(sockets.first);
  ASSIGN_OR_RETURN(worker.pid, Spawn(argv, fds));
  worker.pidfd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, worker.pid, 0)));
  if (!worker.pidfd) return ErrnoError(errno, "pidfd_open");
  return OkStatus();
}

Status WorkerProcesses::AwaitReady() {
  for (Worker& worker : workers_) {
    const StatusOr<Packet> packet = ReceivePacket(worker.socket.get());
    if (!packet.ok()) {
      const std::string who = Describe(worker);
      return UnavailableError(who + " " + EndOf(&worker) + " while it loaded");
    }
    ASSIGN_OR_RETURN(const WorkerReady ready, UnpackReady(packet->bytes));
    RETURN_IF_ERROR(CheckReady(worker, ready));
    resident_bytes_ += ready.resident_bytes;
    if (packet->fds.empty()) continue;
    ASSIGN_OR_RETURN(AdaptableModules modules, UnpackModules(packet->fds[0].get()));
    modules_.merge(modules);
  }
  return OkStatus();
}

Status WorkerProcesses::CheckReady(const Worker& worker, const WorkerReady& ready) {
  if (!ready.status.ok()) return ready.status.WithContext(Describe(worker));
  const bool is_neighbour = group_->counts().PlaceOf(worker.rank).stage == group_->place().stage;
  if (is_neighbour && ready.memory_end != group_->communicator()->end()) {
    return InternalError(Describe(worker) + " shares " + std::to_string(ready.memory_end) +
                         " bytes and not " + std::to_string(group_->communicator()->end()));
  }
  return OkStatus();
}

std::string WorkerProcesses::Describe(int rank, pid_t pid) const {
  return "rank " + std::to_string(rank) + " (" + RankName(group_->counts(), rank) + ", pid " +
         std::to_string(pid) + ")";
}

pid_t WorkerProcesses::PidOf(int rank) const {
  const auto found = std::ranges::find(workers_, rank, &Worker::rank);
  return found == workers_.end() ? getpid() : found->pid;
}

std::string WorkerProcesses::EndOf(Worker* worker) {
  int status = 0;
  while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR) {
  }
  worker->pid = -1;
  if (WIFEXITED(status)) return "ended with status " + std::to_string(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
}

std::string WorkerProcesses::Positions() const {
  std::ostringstream text;
  for (int rank = 0; rank < group_->counts().num_ranks(); ++rank) {
    const RankLine& line = group_->lines()[rank];
    const std::string_view wait = TextOf(line.rank_wait());
    text << (rank == 0 ? "" : "; ") << "rank " << rank << " (" << RankName(group_->counts(), rank)
         << ") at step " << line.step.load() << (wait.empty() ? "" : ", ") << wait;
  }
  return text.str();
}

// ---- adapters ----

Status WorkerProcesses::ShareModules(const AdaptableModules& modules) {
  ASSIGN_OR_RETURN(const UniqueFd file, PackModules(modules));
  const int fds[] = {file.get()};
  WorkerOrder order;
  order.kind = WorkerOrder::Kind::kModules;
  for (const Worker& worker : workers_) {
    RETURN_IF_ERROR(SendPacket(worker.socket.get(), PackOrder(order), fds));
  }
  return OkStatus();
}

Status WorkerProcesses::ReadAdapter(int64_t number, const std::string& name,
                                    const std::string& folder, uint64_t digest) {
  const std::string order = PackOrder(
      {.kind = WorkerOrder::Kind::kReadAdapter, .adapter = number, .name = name, .folder = folder});
  Status all = OkStatus();
  for (const Worker& worker : workers_) {
    RETURN_IF_ERROR(SendPacket(worker.socket.get(), order));
  }
  for (const Worker& worker : workers_) {
    ASSIGN_OR_RETURN(const WorkerAdapter adapter, AwaitAdapter(worker));
    if (!all.ok()) continue;
    if (!adapter.status.ok()) {
      all = adapter.status.WithContext(Describe(worker));
    } else if (adapter.digest != digest) {
      all = UnavailableError("the files of " + name + " changed while they were read");
    }
  }
  return all;
}

StatusOr<WorkerAdapter> WorkerProcesses::AwaitAdapter(const Worker& worker) const {
  const StatusOr<Packet> packet = ReceivePacket(worker.socket.get());
  if (!packet.ok()) return packet.status().WithContext(Describe(worker));
  return UnpackAdapter(packet->bytes);
}

// A worker that is gone has no adapters.
void WorkerProcesses::DropAdapter(int64_t number) {
  const std::string order = PackOrder(
      {.kind = WorkerOrder::Kind::kDropAdapter, .adapter = number, .name = "", .folder = ""});
  for (const Worker& worker : workers_) (void)SendPacket(worker.socket.get(), order);
}

// ---- the watcher ----

void WorkerProcesses::Watch(OnLost on_lost) {
  on_lost_ = std::move(on_lost);
  watcher_ = std::thread([this] { Run(); });
}

void WorkerProcesses::Run() {
  SetThreadName("worker-watch");
  std::vector<pollfd> waited = {{stop_.get(), POLLIN, 0}};
  for (const Worker& worker : workers_) waited.push_back({worker.pidfd.get(), POLLIN, 0});
  for (;;) {
    const int count = poll(waited.data(), waited.size(), -1);
    if (waited[0].revents != 0) return;
    for (size_t i = 0; count > 0 && i < workers_.size(); ++i) {
      if (waited[i + 1].revents == 0) continue;
      const std::string who = Describe(workers_[i]);
      return Lose(workers_[i].rank, who + " " + EndOf(&workers_[i]));
    }
  }
}

// ---- looks ----

void WorkerProcesses::Look(int most_looks, const std::optional<Standstill>& own) {
  if (own) {
    RankLine& line = group_->lines()[group_->rank()];
    line.num_still_looks.store(own->num_looks);
    line.awaits_ranks.store(own->awaits_ranks);
  }
  if (PingAll(most_looks) && own) FindStandstill(most_looks);
}

// Only pings count, not time: a host that stood still has not lost a rank.
bool WorkerProcesses::PingAll(int most_unanswered) {
  bool all_answered = true;
  for (Worker& worker : workers_) {
    RankLine& line = group_->lines()[worker.rank];
    const bool is_answered = line.pong.load() == line.ping.load();
    all_answered &= is_answered;
    worker.num_unanswered = is_answered ? 0 : worker.num_unanswered + 1;
    if (worker.num_unanswered >= most_unanswered) {
      std::ostringstream how;
      how << Describe(worker) << " has given no sign of life for "
          << most_unanswered * WatchedExecutor::kLookMs << " ms";
      Lose(worker.rank, how.str());
      return false;
    }
    if (!is_answered) continue;
    line.ping.fetch_add(1);
    (void)SendPacket(worker.socket.get(), PackOrder({}));
  }
  return all_answered;
}

void WorkerProcesses::FindStandstill(int most_looks) {
  std::vector<Standstill> ranks;
  for (int rank = 0; rank < group_->counts().num_ranks(); ++rank) {
    const RankLine& line = group_->lines()[rank];
    ranks.push_back({line.num_still_looks.load(), line.awaits_ranks.load()});
  }
  const RanksVerdict verdict = JudgeRanks(ranks, most_looks);
  const std::string ms = std::to_string(most_looks * WatchedExecutor::kLookMs) + " ms";
  if (verdict.kind == RanksVerdict::Kind::kOneStands) {
    Lose(verdict.rank, Describe(verdict.rank, PidOf(verdict.rank)) + " stands still: for " + ms +
                           " it has neither computed nor waited for another rank");
  } else if (verdict.kind == RanksVerdict::Kind::kAllWait) {
    Report("all ranks have waited for each other for " + ms + ": " + Positions());
  }
}

void WorkerProcesses::Lose(int rank, const std::string& how) {
  Report(how + ", in step " + std::to_string(group_->lines()[rank].step.load()));
}

void WorkerProcesses::Report(const std::string& loss) {
  if (is_lost_.exchange(true)) return;
  group_->Abandon();
  on_lost_(loss);
}

void WorkerProcesses::EndWatch() {
  if (!watcher_.joinable()) return;
  uint64_t count = 1;
  [[maybe_unused]] const ssize_t written = write(stop_.get(), &count, sizeof count);
  watcher_.join();
  [[maybe_unused]] const ssize_t taken = read(stop_.get(), &count, sizeof count);
}

WorkerProcesses::~WorkerProcesses() {
  EndWatch();
  for (Worker& worker : workers_) worker.socket.Reset();  // which ends it
  for (Worker& worker : workers_) {
    if (worker.pid < 0) continue;
    if (!worker.pidfd || !WaitFor(worker.pidfd.get(), kEndMs)) kill(worker.pid, SIGKILL);
    EndOf(&worker);
  }
}

}  // namespace tandem
