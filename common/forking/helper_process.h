#pragma once

// A helper program of ours, as the process that uses it starts and ends it. The program gets a
// control socket as its first descriptor (kFirstSpawnedFd) and ends when that closes.
// Thread: one. Owns: the process; not the processes that it forked. Failure: a program that is not
// there or does not start.

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

// Where a helper program lies: beside this process's own.
std::string HelperProgramPath(const std::string& name);

class HelperProcess {
 public:
  // argv[0] is the program's path. The descriptors follow the control socket in the program; they
  // are borrowed.
  static StatusOr<HelperProcess> Start(const std::vector<std::string>& argv,
                                       std::span<const int> fds);
  HelperProcess(HelperProcess&& other) noexcept;
  HelperProcess& operator=(HelperProcess&& other) noexcept;
  ~HelperProcess();  // ends it and waits for that

  int control() const { return control_.get(); }

 private:
  HelperProcess(pid_t pid, UniqueFd control) : pid_(pid), control_(std::move(control)) {}

  pid_t pid_;
  UniqueFd control_;
};

}  // namespace tandem
