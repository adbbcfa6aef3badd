#include "frontend/http/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "common/clock.h"
#include "common/log.h"
#include "common/strings.h"
#include "frontend/http/session.h"

namespace tandem {

namespace {

constexpr int kBacklog = 4096;
constexpr int kSystemdFirstFd = 3;
constexpr double kAcceptPauseSeconds = 0.1;  // out of descriptors: wait for some to close

// The socket that systemd opened for this process (sd_listen_fds(3)), or -1.
int InheritedSocket() {
  const char* pid = std::getenv("LISTEN_PID");
  const char* count = std::getenv("LISTEN_FDS");
  if (pid == nullptr || count == nullptr) return -1;
  if (ParseNumber<int>(pid) != ::getpid() || ParseNumber<int>(count).value_or(0) < 1) return -1;
  return kSystemdFirstFd;
}

int BoundPort(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return 0;
}

}  // namespace

HttpServer::HttpServer(ServerOptions options, Router router, std::vector<Shard*> shards)
    : options_(std::move(options)),
      tls_(options_.tls),
      api_keys_(options_.api_keys),
      router_(std::move(router)),
      shards_(std::move(shards)),
      sessions_(shards_.size()) {
  CHECK(!shards_.empty());
  api_keys_.SetPlacesPerKey(options_.limits.requests_per_key);
  CHECK(options_.error) << "ServerOptions::error is not set";
}

HttpServer::~HttpServer() {
  StopListening();
  if (listen_fd_ >= 0) ::close(listen_fd_);
}

Status HttpServer::Listen() {
  listen_fd_ = InheritedSocket();
  is_inherited_ = listen_fd_ >= 0;
  if (is_inherited_) {
    port_ = BoundPort(listen_fd_);
  } else {
    RETURN_IF_ERROR(options_.uds.empty() ? BindTcp() : BindUnix());
    if (::listen(listen_fd_, kBacklog) != 0) return ErrnoError(errno, "listen");
  }
  int on = 1;
  if (::ioctl(listen_fd_, FIONBIO, &on) != 0) return ErrnoError(errno, "listening socket");
  const std::string scheme = options_.tls ? "https://" : "http://";
  if (options_.uds.empty()) {
    const bool v6 = options_.host.find(':') != std::string::npos;
    const std::string host = options_.host.empty() ? "0.0.0.0" : options_.host;
    address_ = scheme + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port_);
  } else {
    address_ = "unix:" + options_.uds;
  }
  acceptor_ = std::make_unique<Socket>(shards_[0], std::exchange(listen_fd_, -1));
  acceptor_->NotifyReadable([this] { Accept(); });
  return OkStatus();
}

Status HttpServer::BindTcp() {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string host = options_.host.empty() ? "0.0.0.0" : options_.host;
  const std::string port = std::to_string(options_.port);
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return InvalidArgumentError("--host " + host + ": " + ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);

  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return ErrnoError(errno, "socket");
  listen_fd_ = fd;
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, found->ai_addr, found->ai_addrlen) != 0) {
    const int bind_error = errno;
    return ErrnoError(bind_error, bind_error == EADDRINUSE
                                      ? "cannot listen on " + host + ":" + port +
                                            " (is another server running there? see --port)"
                                      : "cannot listen on " + host + ":" + port);
  }
  port_ = BoundPort(fd);
  return OkStatus();
}

Status HttpServer::BindUnix() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (options_.uds.size() >= sizeof address.sun_path) {
    return InvalidArgumentError("--uds " + options_.uds + ": longer than " +
                                std::to_string(sizeof address.sun_path - 1) + " characters");
  }
  std::memcpy(address.sun_path, options_.uds.c_str(), options_.uds.size() + 1);
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return ErrnoError(errno, "socket");
  listen_fd_ = fd;
  if (::bind(fd, name, sizeof address) != 0 && errno == EADDRINUSE) {
    // Only a socket is ever removed, since connecting to a plain file is refused as well.
    struct stat info {};
    if (::lstat(options_.uds.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) {
      return AlreadyExistsError("--uds " + options_.uds + ": exists and is not a socket");
    }
    // A socket without a listener was left by a server that is gone.
    if (::connect(fd, name, sizeof address) == 0 || errno != ECONNREFUSED) {
      return AlreadyExistsError("cannot listen on " + options_.uds + ": another server uses it");
    }
    ::unlink(options_.uds.c_str());
    if (::bind(fd, name, sizeof address) != 0) return ErrnoError(errno, "bind " + options_.uds);
  } else if (::access(options_.uds.c_str(), F_OK) != 0) {
    return ErrnoError(errno, "bind " + options_.uds);
  }
  uds_to_remove_ = options_.uds;
  return OkStatus();
}

void HttpServer::Accept() {
  while (true) {
    const int fd = ::accept4(acceptor_->fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) break;
      LOG_WARNING << "accept: " << std::strerror(errno);
      shards_[0]->At(SystemClock().Monotonic() + kAcceptPauseSeconds, [this] {
        if (acceptor_) Accept();
      });
      return;
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (num_connections() >= options_.limits.num_connections) {
      constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n"
          "connection: close\r\n\r\n";
      (void)!::send(fd, kFull.data(), kFull.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      ::close(fd);
      continue;
    }
    ++num_connections_;
    Shard* shard = shards_[next_shard_++ % shards_.size()];
    if (shard->OnThread()) {
      Adopt(fd, shard);
    } else {
      shard->Post([this, fd, shard] { Adopt(fd, shard); });
    }
  }
  acceptor_->NotifyReadable([this] { Accept(); });
}

void HttpServer::Adopt(int fd, Shard* shard) {
  const std::shared_ptr<const TlsContext> tls = tls_.load();
  auto transport = tls ? tls->MakeTransport(fd) : MakePlainTransport(fd);
  auto session = std::make_shared<Session>(this, shard, fd, std::move(transport));
  sessions_[static_cast<size_t>(shard->index())].push_back(session.get());
  shard->Spawn(Session::Run(session), "session");
}

void HttpServer::Remove(Session* session) {
  auto& list = sessions_[static_cast<size_t>(session->shard().index())];
  list.erase(std::find(list.begin(), list.end(), session));
  if (--num_connections_ == 0 && draining()) shards_[0]->Post([this] { AdvanceDrain(); });
}

// ---- The end ----

void HttpServer::RequestEnded() {
  if (--num_requests_ == 0 && draining()) shards_[0]->Post([this] { AdvanceDrain(); });
}

void HttpServer::BeginDrain() {
  draining_ = true;
  shards_[0]->Post([this] {
    if (is_inherited_) StopListening();
  });
  OnEachSession(&Session::CloseIfIdle);
  shards_[0]->Post([this] { AdvanceDrain(); });
}

void HttpServer::CloseAll() {
  shards_[0]->Post([this] { StopListening(); });
  OnEachSession(&Session::Cut);
}

void HttpServer::WhenDrained(Task ended) {
  shards_[0]->Post([this, ended = std::move(ended)]() mutable {
    drained_ = std::move(ended);
    AdvanceDrain();
  });
}

// On the first shard, whenever the last request or the last connection may have gone.
void HttpServer::AdvanceDrain() {
  if (draining() && num_requests() == 0 && !std::exchange(is_leaving_, true)) {
    StopListening();
    OnEachSession(&Session::CloseIfIdle);
    shards_[0]->At(SystemClock().Monotonic() + options_.limits.linger_s,
                   [this] { OnEachSession(&Session::CutUnlessAdmitted); });
  }
  if (is_leaving_ && drained_ && num_connections() == 0) std::exchange(drained_, Task())();
}

// Removes the name before the socket closes: afterwards another server may take it.
void HttpServer::StopListening() {
  if (!uds_to_remove_.empty()) ::unlink(std::exchange(uds_to_remove_, "").c_str());
  acceptor_.reset();
}

void HttpServer::OnEachSession(void (Session::*act)()) {
  for (Shard* shard : shards_) {
    shard->Post([this, shard, act] {
      // A copy, because closing may end a session, which removes itself from the list.
      const auto sessions = sessions_[static_cast<size_t>(shard->index())];
      for (Session* session : sessions) (session->*act)();
    });
  }
}

}  // namespace tandem
