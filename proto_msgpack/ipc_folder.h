#pragma once

// The folder in which a frontend meets its engines, and the next frontend the one that serves: its
// lock, and the names of the sockets in it. A socket's name ends in the process id of its frontend,
// so that two frontends have theirs side by side, and libzmq, which removes the names of sockets
// that it closes, removes its own. What others connect to is a symbolic link without that ending.
// It is replaced by a rename, so it leads to one frontend or the next at every moment. Thread: the
// functions may be called from any one at a time. Failure: Status, with the path.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem::wire {

class IpcFolder {
 public:
  // Creates the folder if it is missing and locks it: two frontends that do not know of each other
  // would replace each other's links. Removes the sockets of processes that are gone. owner: the
  // ending of names. ALREADY_EXISTS: another process has the lock. FAILED_PRECONDITION: others have
  // access to the folder.
  static StatusOr<IpcFolder> Take(std::string path, std::string owner);
  // Beside the frontend that has the lock, which shares it: it stays locked until both let go.
  // Removes the sockets of processes that are gone.
  static IpcFolder Join(std::string path, std::string owner, UniqueFd lock);

  const std::string& path() const { return path_; }
  int lock_fd() const { return lock_.get(); }
  void LetGo() { lock_.Reset(); }

  // Where this frontend binds the socket that others know by `name`.
  std::string SocketOf(std::string_view name) const;
  // From now on `name` leads to SocketOf(name).
  Status Publish(std::string_view name) const;
  // Removes `name` if it leads to SocketOf(name).
  void Withdraw(std::string_view name) const;
  // Sockets of this name of other frontends that live.
  std::vector<std::string> OthersOf(std::string_view name) const;

 private:
  IpcFolder(std::string path, std::string owner, UniqueFd lock);
  void RemoveSocketsOfTheDead() const;

  std::string path_;
  std::string owner_;
  UniqueFd lock_;
};

}  // namespace tandem::wire
