#include "common/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "common/unique_fd.h"

namespace tandem {
namespace {

// Above the numbers that the child gives them, so that one dup2 does not close another's source.
StatusOr<UniqueFd> MovedUp(int fd) {
  UniqueFd moved(fcntl(fd, F_DUPFD_CLOEXEC, 10));
  if (!moved) return ErrnoError(errno, "fcntl");
  return moved;
}

void UseDefaultSignals(posix_spawnattr_t* attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setsigdefault(attributes, &all);
  posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

}  // namespace

StatusOr<pid_t> Spawn(const std::vector<std::string>& argv, std::span<const int> fds) {
  std::vector<UniqueFd> moved;
  for (const int fd : fds) {
    ASSIGN_OR_RETURN(UniqueFd up, MovedUp(fd));
    moved.push_back(std::move(up));
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  for (size_t i = 0; i < moved.size(); ++i) {
    posix_spawn_file_actions_adddup2(&actions, moved[i].get(),
                                     kFirstSpawnedFd + static_cast<int>(i));
  }
  UseDefaultSignals(&attributes);
  std::vector<char*> words;
  words.reserve(argv.size() + 1);
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, words[0], &actions, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return ErrnoError(failed, argv[0]);
  return pid;
}

std::string OwnProgramPath() {
  std::error_code error;
  std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  // Where /proc is not mounted: the path that was executed.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address as the kernel gives it
  if (error) path = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return std::filesystem::absolute(path, error).string();
}

}  // namespace tandem
