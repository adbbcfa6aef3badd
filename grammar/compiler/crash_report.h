#pragma once

// Last words of a process that works on a stranger's grammar. What would end it without a word (a
// crash, too much CPU time, no more memory) becomes an error reply on its socket.
// Thread: main, before others start. One per process.

#include <string_view>

namespace tandem {

class CrashReport {
 public:
  // `what` is named in the replies and must live as long as the process.
  static void Install(int socket, const char* what);
  // From now on this much CPU time may pass.
  static void LimitCpuTime(int limit_ms);
  // In place of that: each step may take this much CPU time, or up to twice as much. One timer runs
  // for all of them, so a step costs no system call.
  static void WatchSteps(int limit_ms);
  static void BeginStep();
  static void EndStep();
  // Limits of the process: memory beyond what it has, no files, no core dump.
  static void LimitMemory(int64_t more_bytes);
};

}  // namespace tandem
