#pragma once

// One started program and the descriptor that becomes readable at its end. Thread: the one that
// started it (the kernel ties the kill-with-parent request to that thread). Owns: the pidfd; a
// child still running when the object goes away is killed and reaped.

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

// The path of one of our programs; all are in the folder of the running one.
StatusOr<std::string> ProgramBeside(std::string_view name);

class ChildProcess {
 public:
  struct Exit {
    int status = 0;  // from waitpid
    bool clean() const;
    int code() const;              // as a shell reports it: 128 + signal for a killed one
    std::string ToString() const;  // "exited with status 1", "was killed by signal 9 (Killed)"
  };

  struct Options {
    int signal_at_our_death = SIGKILL;
    std::string output_path = {};   // where its stdout and stderr go; empty: to ours
    bool stdout_to_stderr = false;  // both to our stderr
    // SIGHUP, SIGUSR1 and SIGUSR2 wait until the program reads them, as ours do by signalfd.
    // Without this they end a program that has only begun to start.
    bool reads_signals = false;
  };

  // Runs argv[0] with the environment of this process plus `environment` ("NAME=value"). The child
  // gets a process group of its own, so a terminal's Ctrl-C reaches only us; when we die it gets
  // options.signal_at_our_death.
  static StatusOr<ChildProcess> Start(const std::vector<std::string>& argv,
                                      const std::vector<std::string>& environment,
                                      const Options& options);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_; }  // readable once the child has ended; -1 when not running
  void Signal(int signal_number) const;
  // Waits for the end and forgets the child. REQUIRES running().
  Exit Reap();

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
};

}  // namespace tandem
