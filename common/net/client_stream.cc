#include "common/net/client_stream.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstring>

namespace tandem {
namespace {

std::string TlsErrorText() {
  const unsigned long code = ERR_get_error();  // NOLINT(google-runtime-int)
  char text[256] = "the connection was closed";
  if (code != 0) ERR_error_string_n(code, text, sizeof text);
  return text;
}

StatusOr<UniqueFd> ConnectTo(const addrinfo& address, const SocketWait& wait) {
  UniqueFd fd(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return UnavailableError(std::strerror(errno));
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return UnavailableError(std::strerror(errno));
    RETURN_IF_ERROR(wait(fd.get(), POLLOUT));
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return UnavailableError(std::strerror(error));
  }
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

SSL* SslOf(void* ssl) { return static_cast<SSL*>(ssl); }

}  // namespace

StatusOr<std::unique_ptr<TlsTrust>> TlsTrust::Load(const std::string& authorities) {
  ERR_clear_error();
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  std::unique_ptr<TlsTrust> trust(new TlsTrust(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  const int loaded = authorities.empty()
                         ? SSL_CTX_set_default_verify_paths(context)
                         : SSL_CTX_load_verify_locations(context, authorities.c_str(), nullptr);
  if (loaded == 1) return trust;
  const std::string name = authorities.empty() ? "the system's certificates" : authorities;
  return InvalidArgumentError(name + ": " + TlsErrorText());
}

TlsTrust::~TlsTrust() { SSL_CTX_free(static_cast<SSL_CTX*>(context_)); }

SocketWait SilenceWait(double seconds) {
  return [seconds](int fd, int16_t events) -> Status {
    while (true) {
      pollfd ready = {.fd = fd, .events = events, .revents = 0};
      const int count = poll(&ready, 1, static_cast<int>(seconds * 1e3));
      if (count > 0) return OkStatus();
      if (count == 0) {
        return UnavailableError("nothing came for " + std::to_string(static_cast<int>(seconds)) +
                                " s");
      }
      if (errno != EINTR) return UnavailableError(std::strerror(errno));
    }
  };
}

StatusOr<std::unique_ptr<ClientStream>> ClientStream::Open(const std::string& host,
                                                           const std::string& port, SocketWait wait,
                                                           const AddressCheck& check) {
  addrinfo hints{};
  hints.ai_flags = AI_ADDRCONFIG;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return UnavailableError(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* each = found; check && each != nullptr; each = each->ai_next) {
    RETURN_IF_ERROR(check(*each->ai_addr));
  }
  Status last = UnavailableError("no address");
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    StatusOr<UniqueFd> fd = ConnectTo(*each, wait);
    if (fd.ok()) {
      return std::unique_ptr<ClientStream>(new ClientStream(*std::move(fd), std::move(wait)));
    }
    last = fd.status();
  }
  return last;
}

ClientStream::~ClientStream() { SSL_free(SslOf(ssl_)); }

Status ClientStream::BeginTls(const std::string& host, const TlsTrust& trust) {
  ERR_clear_error();
  SSL* const ssl = SSL_new(static_cast<SSL_CTX*>(trust.context_));
  ssl_ = ssl;
  in6_addr address;
  const bool is_address = inet_pton(AF_INET, host.c_str(), &address) == 1 ||
                          inet_pton(AF_INET6, host.c_str(), &address) == 1;
  if (is_address) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str());
  } else {
    SSL_set_tlsext_host_name(ssl, host.c_str());
    SSL_set1_host(ssl, host.c_str());
  }
  SSL_set_fd(ssl, fd_.get());
  Status status = Repeat([ssl] { return SSL_connect(ssl); }, POLLIN).status();
  if (const auto verdict = SSL_get_verify_result(ssl); !status.ok() && verdict != X509_V_OK) {
    return FailedPreconditionError(std::string("its certificate is not trusted: ") +
                                   X509_verify_cert_error_string(verdict));
  }
  return status;
}

Status ClientStream::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto write = [&]() -> ssize_t {
      if (ssl_ == nullptr) return send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      return SSL_write(SslOf(ssl_), bytes.data(), static_cast<int>(bytes.size()));
    };
    ASSIGN_OR_RETURN(const size_t count, Repeat(write, POLLOUT));
    if (count == 0) return UnavailableError("the connection was closed");
    bytes.remove_prefix(count);
  }
  return OkStatus();
}

StatusOr<size_t> ClientStream::Read(char* bytes, size_t size) {
  const auto read = [&]() -> ssize_t {
    if (ssl_ == nullptr) return recv(fd_.get(), bytes, size, 0);
    return SSL_read(SslOf(ssl_), bytes, static_cast<int>(size));
  };
  return Repeat(read, POLLIN);
}

// Calls until it does not have to wait. Returns its count, 0 at the peer's end.
template <class F>
StatusOr<size_t> ClientStream::Repeat(F call, int16_t events) {
  while (true) {
    if (ssl_ != nullptr) ERR_clear_error();
    const ssize_t count = call();
    if (count > 0) return static_cast<size_t>(count);
    if (ssl_ == nullptr) {
      if (count == 0) return size_t{0};
      if (errno != EAGAIN && errno != EINTR) return UnavailableError(std::strerror(errno));
    } else {
      const int why = SSL_get_error(SslOf(ssl_), static_cast<int>(count));
      if (why == SSL_ERROR_ZERO_RETURN) return size_t{0};
      if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
        return UnavailableError("TLS: " + TlsErrorText());
      }
      events = why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    }
    RETURN_IF_ERROR(wait_(fd_.get(), events));
  }
}

}  // namespace tandem
