#pragma once

// Starts this program once more, beside itself, to take over from this process: the file that is at
// its path now, which may be a newer version. Flags and environment are those of this process; keys
// are passed in the environment. Thread: any one.

#include <string>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "frontend/config.h"

namespace tandem {

struct NextProcess {
  pid_t pid = 0;
  UniqueFd pidfd;  // readable at its end; it is then to be reaped

  std::string Reap();  // "exited with status 3"
};

// words: of this process's command line, as they were given.
StatusOr<NextProcess> StartNextProcess(const std::vector<std::string>& words,
                                       const FrontendConfig& config);

// Whether a `tandem serve` has started this process; it then starts the next one.
bool IsSupervised();

}  // namespace tandem
