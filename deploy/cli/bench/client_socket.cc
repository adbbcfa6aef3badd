#include "deploy/cli/bench/client_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "common/unix_address.h"

namespace tandem {
namespace {

// co_await resumes once the descriptor is ready in the given direction.
struct Ready {
  Socket* socket;
  bool writable;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> self) const {
    auto resume = [self] { self.resume(); };
    if (writable) {
      socket->NotifyWritable(resume);
    } else {
      socket->NotifyReadable(resume);
    }
  }
  void await_resume() const {}
};

Status Gone(int error_number) {
  return UnavailableError(error_number == ECONNRESET ? "connection reset by the server"
                                                     : std::strerror(error_number));
}

std::string TlsReason(const char* fallback) {
  const unsigned long code = ERR_peek_last_error();
  if (code == 0) return fallback;
  char text[256];
  ERR_error_string_n(code, text, sizeof text);
  return text;
}

bool IsIpAddress(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

// ---- ServerPeer ----

StatusOr<std::unique_ptr<ServerPeer>> ServerPeer::Resolve(const ServerUrl& url, bool insecure) {
  std::unique_ptr<ServerPeer> peer(new ServerPeer);
  peer->host_ = url.host;
  if (!url.socket_path.empty()) {
    ASSIGN_OR_RETURN(const sockaddr_un unix_address, UnixAddress(url.socket_path));
    Address address;
    std::memcpy(&address.storage, &unix_address, sizeof unix_address);
    address.size = sizeof unix_address;
    peer->addresses_.push_back(address);
    return peer;
  }

  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
  if (error != 0) {
    return UnavailableError("cannot look up " + url.host + ":" + url.port + ": " +
                            gai_strerror(error));
  }
  for (const addrinfo* item = found; item != nullptr; item = item->ai_next) {
    Address address;
    address.size = item->ai_addrlen;
    std::memcpy(&address.storage, item->ai_addr, item->ai_addrlen);
    peer->addresses_.push_back(address);
  }
  freeaddrinfo(found);
  if (!url.tls) return peer;

  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  if (context == nullptr) return InternalError("OpenSSL: " + TlsReason("cannot start"));
  peer->tls_ = context;
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  if (!insecure) {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    if (SSL_CTX_set_default_verify_paths(context) != 1) {
      return InternalError("OpenSSL: " + TlsReason("no certificates to trust"));
    }
  }
  return peer;
}

ServerPeer::~ServerPeer() { SSL_CTX_free(static_cast<SSL_CTX*>(tls_)); }

// ---- ClientSocket ----

ClientSocket::~ClientSocket() { Close(); }

void ClientSocket::Close() {
  SSL_free(static_cast<SSL*>(std::exchange(tls_, nullptr)));
  socket_.reset();
}

Awaitable<Status> ClientSocket::Connect() {
  Status status = UnavailableError("no address");
  for (const ServerPeer::Address& address : peer_->addresses_) {
    status = co_await ConnectTo(address);
    if (status.ok()) break;
    Close();
  }
  if (status.ok() && peer_->tls_ != nullptr) status = co_await Handshake();
  co_return status;
}

Awaitable<Status> ClientSocket::ConnectTo(const ServerPeer::Address& address) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) co_return ErrnoError(errno, "socket");
  socket_.emplace(shard_, fd);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // no effect on a UNIX socket
  int error = 0;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) {
    error = errno;
  }
  if (error == EINPROGRESS) {
    const Ready writable{&*socket_, true};
    co_await writable;
    socklen_t size = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) co_return Gone(error).WithContext("cannot connect");
  co_return OkStatus();
}

Awaitable<Status> ClientSocket::Handshake() {
  SSL* ssl = SSL_new(static_cast<SSL_CTX*>(peer_->tls_));
  if (ssl == nullptr) co_return InternalError("OpenSSL: " + TlsReason("no memory"));
  tls_ = ssl;
  SSL_set_fd(ssl, socket_->fd());
  if (IsIpAddress(peer_->host_)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), peer_->host_.c_str());
  } else {
    SSL_set_tlsext_host_name(ssl, peer_->host_.c_str());
    SSL_set1_host(ssl, peer_->host_.c_str());
  }
  while (true) {
    ERR_clear_error();
    const int result = SSL_connect(ssl);
    if (result == 1) co_return OkStatus();
    const Need need = TlsNeed(result);
    if (need == Need::kNothing) {
      co_return UnavailableError("TLS: " + TlsReason("the server ended the handshake"));
    }
    const Ready ready{&*socket_, need == Need::kWritable};
    co_await ready;
  }
}

ClientSocket::Need ClientSocket::TlsNeed(int result) const {
  switch (SSL_get_error(static_cast<const SSL*>(tls_), result)) {
    case SSL_ERROR_WANT_READ:
      return Need::kReadable;
    case SSL_ERROR_WANT_WRITE:
      return Need::kWritable;
    default:
      return Need::kNothing;
  }
}

Awaitable<Status> ClientSocket::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    Need need = Need::kNothing;
    ssize_t sent;
    if (tls_ == nullptr) {
      sent = send(socket_->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN) need = Need::kWritable;
    } else {
      ERR_clear_error();
      sent = SSL_write(static_cast<SSL*>(tls_), bytes.data(),
                       static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX)));
      if (sent <= 0) need = TlsNeed(static_cast<int>(sent));
    }
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (need == Need::kNothing) {
      co_return tls_ == nullptr ? Gone(errno) : Gone(ECONNRESET);
    } else {
      const Ready ready{&*socket_, need == Need::kWritable};
      co_await ready;
    }
  }
  co_return OkStatus();
}

Awaitable<StatusOr<size_t>> ClientSocket::Read(char* data, size_t size) {
  // Skips the wait if the last read may have left bytes in the kernel, or if OpenSSL holds a
  // decrypted record.
  Need need = tls_ == nullptr && !may_have_more_ ? Need::kReadable : Need::kNothing;
  while (true) {
    if (need != Need::kNothing) {
      const Ready ready{&*socket_, need == Need::kWritable};
      co_await ready;
    }
    ssize_t got;
    if (tls_ == nullptr) {
      got = recv(socket_->fd(), data, size, MSG_DONTWAIT);
      need = got < 0 && errno == EAGAIN ? Need::kReadable : Need::kNothing;
      if (got < 0 && need == Need::kNothing) co_return Gone(errno);
    } else {
      ERR_clear_error();
      got = SSL_read(static_cast<SSL*>(tls_), data,
                     static_cast<int>(std::min<size_t>(size, INT_MAX)));
      need = got <= 0 ? TlsNeed(static_cast<int>(got)) : Need::kNothing;
      if (got <= 0 && need == Need::kNothing) {
        if (SSL_get_shutdown(static_cast<const SSL*>(tls_)) != SSL_RECEIVED_SHUTDOWN) {
          co_return Gone(ECONNRESET);
        }
        got = 0;
      }
    }
    if (need != Need::kNothing) continue;
    may_have_more_ = static_cast<size_t>(got) == size;
    co_return static_cast<size_t>(got);
  }
}

bool ClientSocket::IsIdle() const {
  char byte;
  return recv(socket_->fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void ClientSocket::Abort() {
  if (socket_) ::shutdown(socket_->fd(), SHUT_RDWR);
}

}  // namespace tandem
