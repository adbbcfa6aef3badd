#include "frontend/hand_over/own_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "common/unix_address.h"

namespace tandem {
namespace {

constexpr int kBacklog = 8;

}  // namespace

StatusOr<UniqueFd> BindAt(const std::string& path, int type) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoError(errno, "socket");
  ::unlink(path.c_str());
  if (::bind(fd.get(), AsSockaddr(address), sizeof address) != 0) {
    return ErrnoError(errno, "bind " + path);
  }
  return fd;
}

StatusOr<UniqueFd> ListenAt(const std::string& path) {
  ASSIGN_OR_RETURN(UniqueFd fd, BindAt(path, SOCK_SEQPACKET));
  if (::listen(fd.get(), kBacklog) != 0) return ErrnoError(errno, "listen " + path);
  return fd;
}

StatusOr<UniqueFd> ConnectAt(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoError(errno, "socket");
  if (::connect(fd.get(), AsSockaddr(address), sizeof address) != 0) {
    return ErrnoError(errno, "connect " + path);
  }
  return fd;
}

pid_t PeerOf(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool is_known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return is_known && peer.uid == ::geteuid() ? peer.pid : 0;
}

}  // namespace tandem
