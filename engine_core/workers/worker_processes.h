#pragma once

// The processes of the ranks other than the engine core's own: the engine core's program again, in
// the role of a worker (engine_core/run_worker.h). They live as long as this object, and not longer
// than this process, however it ends: the kernel kills them with it, and each also ends when its
// socket does.
//
// A rank that dies or hangs ends the engine: nothing can replace its part of the KV cache. The
// watcher notices a death at once. The watcher of the steps looks here while one lasts (Look), and
// so notices after some seconds (--worker-timeout-seconds) a process that does not run, stopped or
// frozen, and ranks that are at a stand (standstill.h). A step that computes for ever is the
// business of --execute-model-timeout-seconds.
//
// Threads: main starts them; a watcher of its own afterwards, beside that of the steps and the one
// that loads adapters.
// Owns: processes and sockets; borrows the group. Failure: a program that does not start, or what a
// worker reports while it loads.

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "engine_core/executor/rank_group.h"
#include "engine_core/executor/standstill.h"
#include "engine_core/workers/worker_socket.h"

namespace tandem {

// "TP1", "PP0_TP1": a rank in log lines and in the names of processes, as vLLM's.
std::string RankName(const RankCounts& counts, int rank);

class WorkerProcesses {
 public:
  // Called once, on the watcher's thread or in Look; `what` names the rank, how it was lost, and
  // its step.
  using OnLost = std::function<void(const std::string& what)>;

  // `flags`: the engine core's own, as arguments.
  static StatusOr<std::unique_ptr<WorkerProcesses>> Start(const std::vector<std::string>& flags,
                                                          RankGroup* group);
  ~WorkerProcesses();
  WorkerProcesses(const WorkerProcesses&) = delete;

  // Waits until all have loaded their part of the model.
  Status AwaitReady();
  // What adapters may change at the workers, once they are ready; empty: there are no adapters.
  const AdaptableModules& modules() const { return modules_; }
  // Has all workers know the modules of all ranks, before the first ReadAdapter.
  Status ShareModules(const AdaptableModules& modules);
  // Of all workers, when they were ready. Bytes.
  int64_t resident_bytes() const { return resident_bytes_; }

  // Starts the watcher of deaths.
  void Watch(OnLost on_lost);
  void EndWatch();
  // Pings all and takes what they found at the last ping: a rank that has not responded to
  // most_looks in a row, or was at a stand in as many, is lost. own: of this process; nullopt:
  // nothing is held against ranks that stand. REQUIRES: Watch; a pause of
  // WatchedExecutor::kLookMs between two looks.
  void Look(int most_looks, const std::optional<Standstill>& own);
  // Has all workers read their part of an adapter, whose files must have the digest. One thread at
  // a time.
  Status ReadAdapter(int64_t number, const std::string& name, const std::string& folder,
                     uint64_t digest);
  // Any thread.
  void DropAdapter(int64_t number);
  // "rank 1 (TP1) at step 812, waits for the next step", one after another.
  std::string Positions() const;

 private:
  struct Worker {
    int rank = 0;
    pid_t pid = -1;
    UniqueFd pidfd, socket;
    int num_unanswered = 0;  // pings; Look's
  };
  explicit WorkerProcesses(RankGroup* group) : group_(group) {}
  Status StartOne(int rank, const std::vector<std::string>& flags);
  Status CheckReady(const Worker& worker, const WorkerReady& ready);
  std::string Describe(const Worker& worker) const { return Describe(worker.rank, worker.pid); }
  std::string Describe(int rank, pid_t pid) const;
  pid_t PidOf(int rank) const;
  // How a process has ended. REQUIRES: it has.
  std::string EndOf(Worker* worker);
  void Run();
  // Whether all have answered the last ping.
  bool PingAll(int most_unanswered);
  void FindStandstill(int most_looks);
  void Lose(int rank, const std::string& how);
  // Those that end because of the first loss are none.
  void Report(const std::string& loss);
  StatusOr<WorkerAdapter> AwaitAdapter(const Worker& worker) const;

  RankGroup* group_;
  std::vector<Worker> workers_;
  int64_t resident_bytes_ = 0;
  AdaptableModules modules_;
  UniqueFd stop_;  // an eventfd: the watcher ends
  OnLost on_lost_;
  std::atomic<bool> is_lost_{false};
  std::thread watcher_;
};

}  // namespace tandem
