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
  // From now on this much CPU time may pass until Disarm.
  static void LimitCpuTime(int limit_ms);
  static void Disarm() { LimitCpuTime(0); }
  // Limits of the process: memory beyond what it has, no files, no core dump.
  static void LimitMemory(int64_t more_bytes);
};

}  // namespace tandem
