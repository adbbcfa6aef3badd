#pragma once

// Last words of a process that works on what a stranger sent. What would end it without a word (a
// crash, too much time, no more memory) becomes an error reply on its socket (job_reply.h).
// Thread: main, before others start. One per process.

#include <cstdint>

namespace tandem {

class CrashReport {
 public:
  // `what` makes `program` crash: words of the replies, which must live as long as the process.
  static void Install(int socket, const char* what, const char* program);
  // From now on this much CPU time may pass. advice: the end of the reply; it must live as long.
  static void LimitCpuTime(int limit_ms, const char* advice = "");
  // The same of the wall clock, for a process that waits.
  static void LimitWallTime(int limit_ms);
  // In place of LimitCpuTime: each step may take this much CPU time, or up to twice as much. One
  // timer runs for all of them, so a step costs no system call.
  static void WatchSteps(int limit_ms);
  static void BeginStep();
  static void EndStep();
  // Limits of the process: memory beyond what it has, no core dump, files of at most this size.
  static void LimitMemory(int64_t more_bytes, int64_t file_bytes = 0);
};

}  // namespace tandem
