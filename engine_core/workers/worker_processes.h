#pragma once

// The processes of the ranks other than the engine core's own: the engine core's program again, in
// the role of a worker (engine_core/run_worker.h). They live as long as this object, and not longer
// than this process, however it ends: the kernel kills them with it, and each also ends when its
// socket does.
//
// A rank that dies or hangs ends the engine: nothing can replace its part of the KV cache. The
// watcher notices a death at once, and after some seconds (--worker-timeout-seconds) a process that
// does not run: stopped, frozen. A step that computes for ever is the business of
// --execute-model-timeout-seconds.
//
// Threads: main starts them; a watcher of its own afterwards, beside the one that loads adapters.
// Owns: processes and sockets; borrows the group. Failure: a program that does not start, or what a
// worker reports while it loads.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "engine_core/executor/rank_group.h"
#include "engine_core/workers/worker_socket.h"

namespace tandem {

// "TP1", "PP0_TP1": a rank in log lines and in the names of processes, as vLLM's.
std::string RankName(const RankCounts& counts, int rank);

class WorkerProcesses {
 public:
  // Called once on the watcher's thread; `what` names the rank, how it was lost, and its step.
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

  // Starts the watcher. hang_seconds: 0: only deaths are noticed.
  void Watch(double hang_seconds, OnLost on_lost);
  void EndWatch();
  // Has all workers read their part of an adapter, whose files must have the digest. One thread at
  // a time.
  Status ReadAdapter(int64_t number, const std::string& name, const std::string& folder,
                     uint64_t digest);
  // Any thread.
  void DropAdapter(int64_t number);
  // "rank 1 (TP1, pid 77) at step 812", a line each.
  std::string Positions() const;

 private:
  struct Worker {
    int rank = 0;
    pid_t pid = -1;
    UniqueFd pidfd, socket;
    int num_unanswered = 0;  // pings; the watcher's
  };
  explicit WorkerProcesses(RankGroup* group) : group_(group) {}
  Status StartOne(int rank, const std::vector<std::string>& flags);
  Status CheckReady(const Worker& worker, const WorkerReady& ready);
  std::string Describe(const Worker& worker) const;
  // How a process has ended. REQUIRES: it has.
  std::string EndOf(Worker* worker);
  void Run(double hang_seconds);
  // False: a rank is lost.
  bool PingAll(int most_unanswered);
  void Lose(Worker* worker, const std::string& how);
  StatusOr<WorkerAdapter> AwaitAdapter(const Worker& worker) const;

  RankGroup* group_;
  std::vector<Worker> workers_;
  int64_t resident_bytes_ = 0;
  AdaptableModules modules_;
  UniqueFd stop_;  // an eventfd: the watcher ends
  OnLost on_lost_;
  std::thread watcher_;
};

}  // namespace tandem
