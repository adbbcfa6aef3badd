#pragma once

// A helper program that forks a process for each job: it makes ready what all jobs share, then a
// job that crashes, hangs or takes too much memory ends its own process and nothing else.
// ForkedJobs (forked_jobs.h) starts such programs and is the only one to speak with them:
//   control socket:  caller → program   a job: its head; its process's socket, its input (a file)
//                    program → caller   once: ready, or why it can never serve
//   job's socket:    process → caller   that it has begun, and a pidfd of it; once: done, or what
//                                       is wrong with the input; then what the two agree on
// Each packet towards the caller begins with a ReplyKind. The program ends when the control socket
// closes.
// With `prepare` one process is forked ahead, prepares itself and takes the next job from the
// control socket, whatever the program does meanwhile. Jobs that come before the next one is there
// get theirs forked then.
// Thread: the program's main; there are no others.

#include <functional>
#include <span>

#include "common/packets.h"
#include "common/spawn.h"
#include "common/status.h"

namespace tandem {

constexpr int kControlSocket = kFirstSpawnedFd;

struct ForkedJob {
  std::string head;
  UniqueFd socket;
  UniqueFd input;
};

struct ForkingProgramParts {
  std::span<const int> own_fds;  // not for the forked processes, besides the control socket
  // In a process that was forked ahead: touches what a job will need. Empty: none is.
  std::function<void()> prepare = {};
  // While such a process waits, once there was a job, until it returns false: makes more ready that
  // later jobs share.
  std::function<bool()> warm_up = {};
  // In a forked process; returns its exit status. Whatever it prints goes nowhere.
  std::function<int(ForkedJob)> run;
};

// First of all: the signals of a terminal or a supervisor, which reach the caller as well; the log;
// and descriptors, of which the control socket and num_own_fds after it stay. INVALID_ARGUMENT: the
// log cannot be set up.
Status BeginForkingProgram(const char* name, int num_own_fds);
// Returns the program's exit status.
int ServeForkedJobs(const ForkingProgramParts& parts);

}  // namespace tandem
