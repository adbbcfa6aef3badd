#pragma once

// Starts a program as a child process, with the signals' default actions and none blocked.
// Thread: any. Ownership: the descriptors are borrowed; the child is the caller's to reap.

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace tandem {

// The first descriptors of a child besides its standard ones.
constexpr int kFirstSpawnedFd = 3;

// argv[0] is the program's path. fds[i] is descriptor kFirstSpawnedFd + i in the child.
StatusOr<pid_t> Spawn(const std::vector<std::string>& argv, std::span<const int> fds);

// The file of the program that runs here.
std::string OwnProgramPath();

}  // namespace tandem
