#pragma once

// What the threads of this process are at, as the kernel sees it (/proc/self/task): whether they
// compute, or what they wait for. Where the kernel does not say it, a thread counts as one that
// runs. Thread: any.

#include <sys/types.h>

#include <string_view>
#include <vector>

namespace tandem {

enum class ThreadState {
  kRuns,         // or wants a CPU, waits for a disk or for memory, or for what is not listed here
  kAwaitsWord,   // futex(2): a lock, or another word that a thread or a process is to change
  kAwaitsEvent,  // a descriptor, a signal, a time
};

ThreadState ReadThreadState(pid_t thread);
// From the two files of a thread.
ThreadState ParseThreadState(std::string_view stat, std::string_view syscall);
// The threads of this process.
std::vector<pid_t> OwnThreads();
pid_t OwnThread();

}  // namespace tandem
