#pragma once

// The program tandem-grammar, as the engine starts and ends it (grammar/protocol.h).
// Thread: the grammar thread. Owns: the process; not the processes that it forked, which live as
// long as their sockets. Failure: a program that is not there or does not start.

#include <sys/types.h>

#include <string>

#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

// Where the program lies: beside this process's own.
std::string GrammarProgramPath();

class GrammarProcess {
 public:
  // Starts it; ready comes later, over control(). The file of the masks is borrowed.
  static StatusOr<GrammarProcess> Start(const std::string& program, const std::string& model_folder,
                                        int32_t vocab_size, int masks_file);
  GrammarProcess(GrammarProcess&& other) noexcept;
  GrammarProcess& operator=(GrammarProcess&& other) noexcept;
  ~GrammarProcess();  // ends it and waits for that

  int control() const { return control_.get(); }

 private:
  GrammarProcess(pid_t pid, UniqueFd control) : pid_(pid), control_(std::move(control)) {}

  pid_t pid_;
  UniqueFd control_;
};

}  // namespace tandem
