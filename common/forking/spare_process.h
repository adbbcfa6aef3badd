#pragma once

// A process that a program forked ahead of its next job. It ends with the program unless it has
// taken its job. Thread: the program's one. Failure: none is there, and the program does without.

#include <sys/types.h>

#include <functional>

#include "common/unique_fd.h"

namespace tandem {

class SpareProcess {
 public:
  // In the process: called once, when it has taken its job.
  using Announce = std::function<void()>;
  enum class Fate { kWaits, kHasJob, kGone };

  ~SpareProcess() { End(); }

  // Whether there is one, which waits for its job as far as is known.
  explicit operator bool() const { return static_cast<bool>(announced_); }
  // REQUIRES: there is none. `run` returns the process's exit status.
  void Start(const std::function<int(const Announce&)>& run);
  // What has become of it, or becomes of it within timeout_ms (-1: for ever). Then there is none,
  // unless it waits still.
  Fate Wait(int timeout_ms);
  // A job that it takes at that moment is lost, and its caller tries again.
  void End();

 private:
  pid_t id_ = -1;
  UniqueFd announced_;  // a pipe's reading end; the process has the other one
};

}  // namespace tandem
