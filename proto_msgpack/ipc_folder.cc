#include "proto_msgpack/ipc_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/strings.h"

namespace tandem::wire {
namespace {

namespace fs = std::filesystem;

Status MakeFolder(const std::string& path) {
  std::error_code error;
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoError(errno, "mkdir " + path);
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return ErrnoError(errno, "stat " + path);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return FailedPreconditionError(path + " must be a folder of this user with mode 0700");
  }
  return OkStatus();
}

// The process of a socket's name; nullopt: the name has another form.
std::optional<pid_t> OwnerOf(const std::string& name) {
  const size_t end = name.rfind('_');
  return end == name.npos ? std::nullopt : ParseNumber<pid_t>(name.substr(end + 1));
}

bool IsOfTheDead(const fs::path& socket) {
  const std::optional<pid_t> owner = OwnerOf(socket.filename());
  return owner && *owner > 0 && kill(*owner, 0) != 0 && errno == ESRCH;
}

std::vector<fs::path> SocketsIn(const std::string& folder) {
  std::vector<fs::path> sockets;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.symlink_status(error).type() == fs::file_type::socket) sockets.push_back(entry);
  }
  return sockets;
}

}  // namespace

IpcFolder::IpcFolder(std::string path, std::string owner, UniqueFd lock)
    : path_(std::move(path)), owner_(std::move(owner)), lock_(std::move(lock)) {}

StatusOr<IpcFolder> IpcFolder::Take(std::string path, std::string owner) {
  RETURN_IF_ERROR(MakeFolder(path));
  // The folder itself: systemd-tmpfiles takes nothing away from a folder that is locked.
  UniqueFd lock(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock) return ErrnoError(errno, "open " + path);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return AlreadyExistsError("another server runs in " + path);
  }
  IpcFolder folder(std::move(path), std::move(owner), std::move(lock));
  folder.RemoveSocketsOfTheDead();
  return folder;
}

IpcFolder IpcFolder::Join(std::string path, std::string owner, UniqueFd lock) {
  IpcFolder folder(std::move(path), std::move(owner), std::move(lock));
  folder.RemoveSocketsOfTheDead();
  return folder;
}

void IpcFolder::RemoveSocketsOfTheDead() const {
  for (const fs::path& socket : SocketsIn(path_)) {
    if (IsOfTheDead(socket)) unlink(socket.c_str());
  }
}

std::string IpcFolder::SocketOf(std::string_view name) const {
  return path_ + "/" + std::string(name) + "_" + owner_;
}

Status IpcFolder::Publish(std::string_view name) const {
  const std::string socket = SocketOf(name);
  const std::string made = socket + ".link";
  const std::string link = path_ + "/" + std::string(name);
  unlink(made.c_str());
  const fs::path target = fs::path(socket).filename();
  if (symlink(target.c_str(), made.c_str()) != 0) return ErrnoError(errno, "symlink " + made);
  if (rename(made.c_str(), link.c_str()) == 0) return OkStatus();
  const int error = errno;
  unlink(made.c_str());
  return ErrnoError(error, "rename " + made + " to " + link);
}

void IpcFolder::Withdraw(std::string_view name) const {
  const fs::path link = path_ + "/" + std::string(name);
  std::error_code error;
  if (fs::read_symlink(link, error) == fs::path(SocketOf(name)).filename()) unlink(link.c_str());
}

std::vector<std::string> IpcFolder::OthersOf(std::string_view name) const {
  std::vector<std::string> others;
  const std::string own = SocketOf(name);
  const std::string beginning = std::string(name) + "_";
  for (const fs::path& socket : SocketsIn(path_)) {
    const std::string file = socket.filename();
    const bool has_name =
        file.starts_with(beginning) && file.find('_', beginning.size()) == file.npos;
    if (has_name && socket != own && !IsOfTheDead(socket)) others.push_back(socket);
  }
  return others;
}

}  // namespace tandem::wire
