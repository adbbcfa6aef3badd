#include "engine_core/kv_remote/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "common/strings.h"
#include "common/unix_address.h"

namespace tandem {
namespace {

constexpr std::string_view kUnix = "unix:", kTcp = "tcp://";
constexpr int kBacklog = 256;

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

StatusOr<SocketAddress> AddressAt(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un name, UnixAddress(path));
  SocketAddress address;
  std::memcpy(&address.bytes, &name, sizeof name);
  address.size = sizeof name;
  return address;
}

// flags: AI_NUMERICHOST where no name server may be asked.
StatusOr<SocketAddress> TcpAddress(const KvAddress& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  const int error = getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0) return InvalidArgumentError(address.ToString() + ": " + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(list, freeaddrinfo);
  SocketAddress found;
  std::memcpy(&found.bytes, list->ai_addr, list->ai_addrlen);
  found.size = list->ai_addrlen;
  return found;
}

StatusOr<UniqueFd> MakeSocket(int family) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoError(errno, "socket");
  if (family != AF_UNIX) {
    const int yes = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  }
  return fd;
}

// The path is free, or a socket at which nobody listens any more.
Status RemoveStale(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) return OkStatus();
  if (!S_ISSOCK(about.st_mode)) return AlreadyExistsError(path + " is there and is no socket");
  ASSIGN_OR_RETURN(const UniqueFd probe, MakeSocket(AF_UNIX));
  ASSIGN_OR_RETURN(const SocketAddress address, AddressAt(path));
  if (connect(probe.get(), address.get(), address.size) == 0 || errno == EAGAIN) {
    return AlreadyExistsError("another process listens at " + path);
  }
  if (errno != ECONNREFUSED) return ErrnoError(errno, path);
  return unlink(path.c_str()) == 0 ? OkStatus() : ErrnoError(errno, path);
}

Status NoteBound(int socket, KvAddress* address) {
  SocketAddress bound;
  bound.size = sizeof(bound.bytes);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound.bytes), &bound.size) != 0) {
    return ErrnoError(errno, "getsockname");
  }
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const int error = getnameinfo(bound.get(), bound.size, host, sizeof(host), port, sizeof(port),
                                NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) return InternalError(std::string("getnameinfo: ") + gai_strerror(error));
  address->host = host;
  address->port = ParseNumber<int>(port).value_or(0);
  return OkStatus();
}

}  // namespace

bool KvAddress::is_local() const {
  return is_unix() || host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string KvAddress::ToString() const {
  if (is_unix()) return RemoteHost();
  const bool is_v6 = host.find(':') != std::string::npos;
  return std::string(kTcp) + (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

StatusOr<KvAddress> KvAddress::Parse(std::string_view text) {
  const auto wrong = [&](const char* why) {
    return InvalidArgumentError("'" + std::string(text) + "' " + why +
                                "; it must be unix:/path or tcp://host:port");
  };
  if (text.starts_with(kUnix)) return OfRemote(std::string(text), 0);
  if (!text.starts_with(kTcp)) return wrong("is no address");
  const std::string_view rest = text.substr(kTcp.size());
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return wrong("has no port");
  const std::optional<int> port = ParseNumber<int>(rest.substr(colon + 1));
  if (!port || *port < 0 || *port > UINT16_MAX) return wrong("has no port");
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || host == "*" || host == "0.0.0.0" || host == "::") {
    return wrong("has no host at which other engines would find this one");
  }
  return KvAddress{.host = std::string(host), .port = *port};
}

StatusOr<KvAddress> KvAddress::OfRemote(const std::string& host, int64_t port) {
  if (host.starts_with(kUnix)) {
    const std::string path = host.substr(kUnix.size());
    if (!path.starts_with('/')) {
      return InvalidArgumentError("'" + path +
                                  "' is no path of a unix socket: it must begin with /");
    }
    RETURN_IF_ERROR(UnixAddress(path).status());
    return KvAddress{.path = path};
  }
  if (host.empty() || host.size() > INET6_ADDRSTRLEN || port < 1 || port > UINT16_MAX) {
    return InvalidArgumentError("remote_host and remote_port are no address");
  }
  const KvAddress address = {.host = host, .port = static_cast<int>(port)};
  RETURN_IF_ERROR(TcpAddress(address, AI_NUMERICHOST).status());
  return address;
}

StatusOr<UniqueFd> ListenAt(KvAddress* address) {
  SocketAddress name;
  if (address->is_unix()) {
    RETURN_IF_ERROR(RemoveStale(address->path));
    ASSIGN_OR_RETURN(name, AddressAt(address->path));
  } else {
    ASSIGN_OR_RETURN(name, TcpAddress(*address, 0));
  }
  ASSIGN_OR_RETURN(UniqueFd fd, MakeSocket(name.bytes.ss_family));
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  // The mode of a unix socket's file is that of the socket, from the begin.
  if (address->is_unix()) fchmod(fd.get(), S_IRUSR | S_IWUSR);
  if (bind(fd.get(), name.get(), name.size) != 0 || listen(fd.get(), kBacklog) != 0) {
    return ErrnoError(errno, address->ToString());
  }
  if (!address->is_unix()) RETURN_IF_ERROR(NoteBound(fd.get(), address));
  return fd;
}

StatusOr<UniqueFd> ConnectTo(const KvAddress& address) {
  SocketAddress name;
  if (address.is_unix()) {
    ASSIGN_OR_RETURN(name, AddressAt(address.path));
  } else {
    ASSIGN_OR_RETURN(name, TcpAddress(address, AI_NUMERICHOST));
  }
  ASSIGN_OR_RETURN(UniqueFd fd, MakeSocket(name.bytes.ss_family));
  if (connect(fd.get(), name.get(), name.size) != 0 && errno != EINPROGRESS) {
    return UnavailableError(ErrnoError(errno, "connect").message());
  }
  return fd;
}

Status CheckConnected(int socket, const KvAddress& address) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return UnavailableError(ErrnoError(error, "connect").message());
  if (!address.is_unix()) return OkStatus();
  ucred peer{};
  size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoError(errno, "SO_PEERCRED");
  }
  if (peer.uid == geteuid() || peer.uid == 0) return OkStatus();
  return Status(StatusCode::kPermissionDenied,
                "the socket belongs to another user, " + std::to_string(peer.uid));
}

}  // namespace tandem
