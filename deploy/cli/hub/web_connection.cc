#include "deploy/cli/hub/web_connection.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "common/strings.h"
#include "deploy/cli/hub/web_proxy.h"

namespace tandem {
namespace {

constexpr double kConnectSeconds = 10;
constexpr size_t kMaxTunnelHeadBytes = 16 << 10;

std::string TlsErrorText() {
  const unsigned long code = ERR_get_error();  // NOLINT(google-runtime-int)
  char text[256] = "the connection was closed";
  if (code != 0) ERR_error_string_n(code, text, sizeof text);
  return text;
}

Status WaitFor(int fd, int16_t events, double seconds) {
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
}

StatusOr<UniqueFd> ConnectTo(const addrinfo& address) {
  UniqueFd fd(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return UnavailableError(std::strerror(errno));
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return UnavailableError(std::strerror(errno));
    RETURN_IF_ERROR(WaitFor(fd.get(), POLLOUT, kConnectSeconds));
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return UnavailableError(std::strerror(error));
  }
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

StatusOr<UniqueFd> Connect(const WebUrl& url) {
  addrinfo hints{};
  hints.ai_flags = AI_ADDRCONFIG;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
      error != 0) {
    return UnavailableError(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  Status last = UnavailableError("no address");
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    StatusOr<UniqueFd> fd = ConnectTo(*each);
    if (fd.ok()) return fd;
    last = fd.status();
  }
  return last;
}

std::string BasicCredentials(const std::string& user) {
  std::string text(4 * ((user.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(user.data()),
                                   static_cast<int>(user.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

SSL* SslOf(void* ssl) { return static_cast<SSL*>(ssl); }

}  // namespace

StatusOr<std::unique_ptr<WebTrust>> WebTrust::FromSystem() {
  ERR_clear_error();
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  std::unique_ptr<WebTrust> trust(new WebTrust(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (SSL_CTX_set_default_verify_paths(context) != 1) {
    return FailedPreconditionError("no certificates to trust: " + TlsErrorText());
  }
  return trust;
}

WebTrust::~WebTrust() { SSL_CTX_free(static_cast<SSL_CTX*>(context_)); }

StatusOr<std::unique_ptr<WebConnection>> WebConnection::Open(const WebUrl& url,
                                                             const WebTrust& trust,
                                                             double silence_s) {
  ASSIGN_OR_RETURN(const std::optional<WebUrl> proxy, ProxyFor(url));
  StatusOr<UniqueFd> fd = Connect(proxy ? *proxy : url);
  if (!fd.ok()) return fd.status().WithContext(proxy ? "proxy " + proxy->Origin() : url.Origin());
  std::unique_ptr<WebConnection> connection(new WebConnection(*std::move(fd), silence_s));
  if (proxy && !proxy->user.empty()) {
    connection->proxy_line_ =
        "Proxy-Authorization: Basic " + BasicCredentials(proxy->user) + "\r\n";
  }
  connection->wants_whole_url_ = proxy && !url.is_tls;
  if (proxy && url.is_tls) {
    if (const Status status = connection->OpenTunnel(url); !status.ok()) {
      return status.WithContext("proxy " + proxy->Origin());
    }
  }
  if (url.is_tls) {
    if (const Status status = connection->BeginTls(url, trust); !status.ok()) {
      return status.WithContext(url.Origin());
    }
  }
  return connection;
}

WebConnection::~WebConnection() { SSL_free(SslOf(ssl_)); }

Status WebConnection::OpenTunnel(const WebUrl& url) {
  const std::string name = url.host.find(':') != url.host.npos ? "[" + url.host + "]" : url.host;
  const std::string host = name + ":" + url.port;
  RETURN_IF_ERROR(
      Write("CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\n" + proxy_line_ + "\r\n"));
  std::string head;
  // Byte by byte: what follows the head belongs to TLS.
  while (!head.ends_with("\r\n\r\n")) {
    char byte = 0;
    ASSIGN_OR_RETURN(const size_t count, Read(&byte, 1));
    if (count == 0) return UnavailableError("the connection was closed");
    head += byte;
    if (head.size() > kMaxTunnelHeadBytes) return UnavailableError("its response has no end");
  }
  const std::string line = head.substr(0, head.find('\r'));
  const std::vector<std::string_view> words = Split(line, ' ');
  if (words.size() < 2 || !words[0].starts_with("HTTP/1.")) {
    return UnavailableError("its response is not HTTP");
  }
  if (words[1] == "200") return OkStatus();
  const std::string reason = "it responds '" + line.substr(line.find(' ') + 1) + "'";
  return words[1].starts_with('5') ? UnavailableError(reason) : InvalidArgumentError(reason);
}

Status WebConnection::BeginTls(const WebUrl& url, const WebTrust& trust) {
  ERR_clear_error();
  SSL* const ssl = SSL_new(static_cast<SSL_CTX*>(trust.context()));
  ssl_ = ssl;
  in6_addr address;
  const bool is_address = inet_pton(AF_INET, url.host.c_str(), &address) == 1 ||
                          inet_pton(AF_INET6, url.host.c_str(), &address) == 1;
  if (is_address) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), url.host.c_str());
  } else {
    SSL_set_tlsext_host_name(ssl, url.host.c_str());
    SSL_set1_host(ssl, url.host.c_str());
  }
  SSL_set_fd(ssl, fd_.get());
  const Status status = Repeat([ssl] { return SSL_connect(ssl); }, POLLIN).status();
  if (const auto verdict = SSL_get_verify_result(ssl); !status.ok() && verdict != X509_V_OK) {
    return FailedPreconditionError(std::string("its certificate is not trusted: ") +
                                   X509_verify_cert_error_string(verdict) +
                                   "; SSL_CERT_FILE names a file of certificates to trust");
  }
  return status;
}

Status WebConnection::Write(std::string_view bytes) {
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

StatusOr<size_t> WebConnection::Read(char* bytes, size_t size) {
  const auto read = [&]() -> ssize_t {
    if (ssl_ == nullptr) return recv(fd_.get(), bytes, size, 0);
    return SSL_read(SslOf(ssl_), bytes, static_cast<int>(size));
  };
  return Repeat(read, POLLIN);
}

// Calls until it does not have to wait. Returns its count, 0 at the peer's end.
template <class F>
StatusOr<size_t> WebConnection::Repeat(F call, int16_t events) {
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
    RETURN_IF_ERROR(WaitFor(fd_.get(), events, silence_s_));
  }
}

}  // namespace tandem
