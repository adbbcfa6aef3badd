#include "frontend/http/listening_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/strings.h"
#include "common/unix_address.h"

namespace tandem {
namespace {

constexpr int kBacklog = 4096;
constexpr int kSystemdFirstFd = 3;

// The socket that systemd opened for this process, or none.
UniqueFd SocketOfSystemd() {
  const char* pid = std::getenv("LISTEN_PID");
  const char* count = std::getenv("LISTEN_FDS");
  if (pid == nullptr || count == nullptr) return UniqueFd();
  if (ParseNumber<int>(pid) != ::getpid() || ParseNumber<int>(count).value_or(0) < 1) {
    return UniqueFd();
  }
  ::fcntl(kSystemdFirstFd, F_SETFD, FD_CLOEXEC);
  return UniqueFd(kSystemdFirstFd);
}

sockaddr_storage AddressOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return address;
}

int PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return 0;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

const std::string& HostOf(const ServerSettings& settings) {
  static const std::string kAll = "0.0.0.0";
  return settings.host.empty() ? kAll : settings.host;
}

StatusOr<Addresses> Resolve(const ServerSettings& settings) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(settings.port);
  const int error = ::getaddrinfo(HostOf(settings).c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return InvalidArgumentError("--host " + HostOf(settings) + ": " + ::gai_strerror(error));
  }
  return Addresses(found, &::freeaddrinfo);
}

StatusOr<ListeningSocket> BindTcp(const ServerSettings& settings) {
  ASSIGN_OR_RETURN(const Addresses found, Resolve(settings));
  ListeningSocket socket;
  socket.fd = UniqueFd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.fd) return ErrnoError(errno, "socket");
  const int on = 1;
  ::setsockopt(socket.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.fd.get(), found->ai_addr, found->ai_addrlen) == 0) return socket;
  const int error = errno;
  const std::string what =
      "cannot listen on " + HostOf(settings) + ":" + std::to_string(settings.port);
  return ErrnoError(
      error, error == EADDRINUSE ? what + " (is another server running there? see --port)" : what);
}

StatusOr<ListeningSocket> BindUnix(const std::string& path) {
  const StatusOr<sockaddr_un> address = UnixAddress(path);
  if (!address.ok()) return address.status().WithContext("--uds");
  const sockaddr* name = AsSockaddr(*address);
  ListeningSocket socket;
  socket.fd = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.fd) return ErrnoError(errno, "socket");
  const int fd = socket.fd.get();
  if (::bind(fd, name, sizeof *address) != 0) {
    if (errno != EADDRINUSE) return ErrnoError(errno, "--uds " + path);
    // Only a socket is ever removed, since connecting to a plain file is refused as well.
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) {
      return AlreadyExistsError("--uds " + path + ": exists and is not a socket");
    }
    // A socket without a listener was left by a server that is gone.
    if (::connect(fd, name, sizeof *address) == 0 || errno != ECONNREFUSED) {
      return AlreadyExistsError("cannot listen on " + path + ": another server uses it");
    }
    ::unlink(path.c_str());
    if (::bind(fd, name, sizeof *address) != 0) return ErrnoError(errno, "--uds " + path);
  }
  socket.path = path;
  return socket;
}

// Equal but for the port.
bool HaveEqualHosts(const sockaddr_storage& bound, const addrinfo& wanted) {
  if (bound.ss_family != wanted.ai_family) return false;
  if (bound.ss_family == AF_INET) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in&>(bound).sin_addr,
                       &reinterpret_cast<const sockaddr_in*>(wanted.ai_addr)->sin_addr,
                       sizeof(in_addr)) == 0;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(bound).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(wanted.ai_addr)->sin6_addr,
                     sizeof(in6_addr)) == 0;
}

}  // namespace

int ListeningSocket::port() const { return PortOf(AddressOf(fd.get())); }

ListeningSocket ListeningSocket::Share() const {
  return {UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)), is_from_systemd, path};
}

StatusOr<ListeningSocket> OpenListeningSocket(const ServerSettings& settings) {
  ListeningSocket socket;
  socket.fd = SocketOfSystemd();
  socket.is_from_systemd = static_cast<bool>(socket.fd);
  if (!socket.is_from_systemd) {
    ASSIGN_OR_RETURN(socket, settings.uds.empty() ? BindTcp(settings) : BindUnix(settings.uds));
    if (::listen(socket.fd.get(), kBacklog) != 0) return ErrnoError(errno, "listen");
  }
  int on = 1;
  if (::ioctl(socket.fd.get(), FIONBIO, &on) != 0) return ErrnoError(errno, "listening socket");
  return socket;
}

Status CheckListensThere(const ListeningSocket& socket, const ServerSettings& settings) {
  if (socket.is_from_systemd) return OkStatus();
  const sockaddr_storage bound = AddressOf(socket.fd.get());
  bool is_there = socket.path == settings.uds;
  if (settings.uds.empty() && socket.path.empty()) {
    ASSIGN_OR_RETURN(const Addresses wanted, Resolve(settings));
    is_there =
        HaveEqualHosts(bound, *wanted) && (settings.port == 0 || settings.port == PortOf(bound));
  }
  if (is_there) return OkStatus();
  return FailedPreconditionError(
      "the frontend that serves listens elsewhere than --host, --port or --uds: its address stays "
      "while another one takes over");
}

}  // namespace tandem
