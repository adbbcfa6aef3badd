#include "deploy/cli/runtime_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/log.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "lock";

bool IsOfThisUser(int fd) {
  struct stat about {};
  return fstat(fd, &about) == 0 && about.st_uid == geteuid();
}

// The lock last: a folder that has one can be removed by the next process if this one ends here.
void RemoveAll(const std::string& path) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().filename() != kLock) fs::remove_all(entry.path(), ignored);
  }
  fs::remove_all(path, ignored);
}

void RemoveIfDead(const std::string& path) {
  const UniqueFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder || !IsOfThisUser(folder.get())) return;
  const UniqueFd lock(openat(folder.get(), kLock, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!lock || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;
  RemoveAll(path);
  LOG_INFO << "removed " << path << ", which a process that was killed has left";
}

void RemoveDead(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (entry.path().filename().string().starts_with(kRuntimeFolderPrefix)) {
      RemoveIfDead(entry.path());
    }
  }
}

// nullopt: another process has taken the folder for one that was left, before it was locked.
std::optional<UniqueFd> Lock(const std::string& path) {
  UniqueFd lock(open((path + "/" + kLock).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!lock) return std::nullopt;
  // Where a file system has no locks, nobody gets this one and the folder stays.
  while (flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  struct stat about {};
  if (fstat(lock.get(), &about) != 0 || about.st_nlink == 0) return std::nullopt;
  return lock;
}

}  // namespace

StatusOr<RuntimeDirectory> RuntimeDirectory::Make(const std::string& parent) {
  RemoveDead(parent);
  constexpr int kTries = 100;
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    std::string path = parent + "/" + std::string(kRuntimeFolderPrefix) + "XXXXXX";
    if (mkdtemp(path.data()) == nullptr) {
      return ErrnoError(errno, "make folder " + path +
                                   " (XDG_RUNTIME_DIR may name a place where that can be done)");
    }
    std::optional<UniqueFd> lock = Lock(path);
    if (lock) return RuntimeDirectory(std::move(path), *std::move(lock));
    error = errno;
    RemoveAll(path);
  }
  return ErrnoError(error, "make a file in " + parent + "/" + std::string(kRuntimeFolderPrefix));
}

RuntimeDirectory::RuntimeDirectory(RuntimeDirectory&& other) noexcept
    : path_(std::exchange(other.path_, "")), lock_(std::move(other.lock_)) {}

void RuntimeDirectory::Remove() {
  if (!path_.empty()) RemoveAll(std::exchange(path_, ""));
}

}  // namespace tandem
