#pragma once

// Whether another process does anything. It rests when all of its threads sleep or are stopped and
// it has used no CPU time; one that computes, lacks a CPU, waits for a disk or for memory, or is
// held by a debugger, does not. Where /proc does not show that, no process rests. Looks are counted
// and time is not, so a host that was suspended shows nothing.
// Thread: one. Owns: a pidfd, so it never takes another process for this one. Never fails.

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/unique_fd.h"

namespace tandem {

class ProcessRest {
 public:
  explicit ProcessRest(UniqueFd process) : process_(std::move(process)) {}
  // How many looks in a row have found it at rest since the look before. The CPU time is in ticks
  // of 10 ms, so two looks should be further apart.
  int Look();
  void Kill() const;

 private:
  UniqueFd process_;
  std::optional<int64_t> cpu_ticks_;  // of the last look, if it was at rest
  int num_looks_ = 0;
};

// Of proc(5)'s stat of a process: user and system time of all its threads; -1: it has none.
int64_t CpuTicksOf(std::string_view stat);
// Of a thread's: it sleeps or is stopped.
bool ThreadRests(std::string_view stat);

}  // namespace tandem
