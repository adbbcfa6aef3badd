#pragma once

// The threads that kernels run on. One fork-join at a time: the caller publishes work cut into
// grains, all threads (the caller too) claim chunks of them from one atomic counter, and Run
// returns when the last chunk is done. Claims are dynamic so that a thread preempted by the
// operating system delays only the chunk it holds. A chunk is a fixed share of the grains left:
// claims are few, and the last ones are so small that all threads end at about the same time.
// Thread: Run from one thread at a time, never from inside the function it runs (CHECK). Workers
// own nothing.
// An idle worker spins for 40 us (gaps between the ops of a step are shorter), then sleeps. So does
// the caller when it waits for the last chunk, in short naps: the thread that holds the chunk has
// lost its CPU, and the operating system moves it to ours once ours is idle, but only after it has
// been off its own CPU for half a millisecond.

#include <atomic>
#include <filesystem>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/parallel.h"

namespace tandem {

// CPUs that this process may use: its affinity mask, limited to its cgroup's quota (whole CPUs, at
// least 1).
int NumUsableCpus();

// The quota alone, in whole CPUs; a large number if there is none. `cgroups` is the text of
// /proc/self/cgroup, `mount` where the hierarchies are mounted. Reads cgroup v2 (cpu.max) and v1
// (cpu.cfs_quota_us), of every parent as well.
int CgroupCpuLimit(std::string_view cgroups, const std::filesystem::path& mount);

class ComputePool {
 public:
  explicit ComputePool(int num_threads);  // the caller's included; starts num_threads - 1
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  // Calls function on ranges of `grain` items or more (the very last may be shorter) until
  // [0, num_items) is covered, each item once. One grain or one thread: all runs on the caller.
  void Run(int64_t num_items, int64_t grain, ThreadRangeFunction function);

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }
  int num_asleep() const { return num_asleep_.load(); }  // workers

 private:
  void WorkerLoop(int thread);
  bool RunOneChunk(int thread);
  void RunGrains(int64_t first, int64_t count, int thread) const;
  void WaitForLastChunk();

  // The job. Written by Run while no grain is left to claim, read by threads that hold a claim.
  const ThreadRangeFunction* function_ = nullptr;
  int64_t num_items_ = 0;
  int64_t grain_ = 1;
  int64_t num_grains_ = 0;

  // Upper half: number of the job, so that a late thread cannot claim from the next job by chance;
  // lower half: grains not yet claimed.
  alignas(64) std::atomic<uint64_t> claim_{0};
  alignas(64) std::atomic<int32_t> num_unfinished_{0};  // grains
  std::atomic<bool> caller_sleeps_{false};  // or is about to: the thread that ends the job wakes it
  alignas(64) std::atomic<int32_t> num_asleep_{0};
  std::atomic<uint32_t> wake_{0};  // workers sleep on it; changed to wake them
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace tandem
