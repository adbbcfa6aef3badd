#include "frontend/tracing/http_post.h"

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

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "common/clock.h"
#include "common/strings.h"
#include "common/unique_fd.h"

namespace tandem {

namespace {

constexpr size_t kMaxHeadBytes = 64 << 10;
constexpr size_t kMaxBodyBytes = 64 << 10;
// The deadline may move while a socket is waited for; it is read so often.
constexpr double kLongestWait = 0.1;

std::string TlsErrorText() {
  const unsigned long code = ERR_get_error();  // NOLINT(google-runtime-int)
  char text[256] = "the connection was closed";
  if (code != 0) ERR_error_string_n(code, text, sizeof text);
  return text;
}

Status LateError() { return Status(StatusCode::kDeadlineExceeded, "no reply in time"); }

Status WaitFor(int fd, int16_t events, const PostDeadline& deadline) {
  while (true) {
    const double left = deadline() - SystemClock().Monotonic();
    if (left <= 0) return LateError();
    pollfd ready = {.fd = fd, .events = events, .revents = 0};
    const int count = ::poll(&ready, 1, 1 + static_cast<int>(std::min(left, kLongestWait) * 1e3));
    if (count > 0) return OkStatus();
    if (count < 0 && errno != EINTR) return UnavailableError(std::strerror(errno));
  }
}

StatusOr<UniqueFd> ConnectTo(const addrinfo& address, const PostDeadline& deadline) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return UnavailableError(std::strerror(errno));
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return UnavailableError(std::strerror(errno));
    RETURN_IF_ERROR(WaitFor(fd.get(), POLLOUT, deadline));
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return UnavailableError(std::strerror(error));
  }
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

StatusOr<UniqueFd> Connect(const HttpUrl& url, const PostDeadline& deadline) {
  addrinfo hints{};
  hints.ai_flags = AI_ADDRCONFIG;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
      error != 0) {
    return UnavailableError(url.host + ": " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  Status last = UnavailableError(url.host + ": no address");
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    StatusOr<UniqueFd> fd = ConnectTo(*each, deadline);
    if (fd.ok()) return fd;
    last = fd.status();
  }
  return last;
}

}  // namespace

// A connection's bytes, through TLS or not.
class PostStream {
 public:
  static StatusOr<std::unique_ptr<PostStream>> Open(const HttpUrl& url, const TlsTrust* trust,
                                                    const PostDeadline& deadline) {
    ASSIGN_OR_RETURN(UniqueFd fd, Connect(url, deadline));
    std::unique_ptr<PostStream> stream(new PostStream(std::move(fd), &deadline));
    if (url.is_tls) RETURN_IF_ERROR(stream->BeginTls(url, *trust));
    return stream;
  }
  ~PostStream() { SSL_free(ssl_); }
  PostStream(const PostStream&) = delete;

  Status Write(std::string_view bytes) {
    const auto write = [&]() -> ssize_t {
      if (ssl_ == nullptr) return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      return SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
    };
    while (!bytes.empty()) {
      ASSIGN_OR_RETURN(const size_t count, Repeat(write, POLLOUT));
      bytes.remove_prefix(count);
    }
    return OkStatus();
  }

  // Appends what is there; 0 at the end.
  StatusOr<size_t> Read(std::string* to) {
    char bytes[4096];
    const auto read = [&]() -> ssize_t {
      if (ssl_ == nullptr) return ::recv(fd_.get(), bytes, sizeof bytes, 0);
      return SSL_read(ssl_, bytes, sizeof bytes);
    };
    ASSIGN_OR_RETURN(const size_t count, Repeat(read, POLLIN));
    to->append(bytes, count);
    return count;
  }

 private:
  PostStream(UniqueFd fd, const PostDeadline* deadline) : fd_(std::move(fd)), deadline_(deadline) {}

  Status BeginTls(const HttpUrl& url, const TlsTrust& trust) {
    ERR_clear_error();
    ssl_ = SSL_new(static_cast<SSL_CTX*>(trust.context_));
    in6_addr address;
    const bool is_address = ::inet_pton(AF_INET, url.host.c_str(), &address) == 1 ||
                            ::inet_pton(AF_INET6, url.host.c_str(), &address) == 1;
    if (is_address) {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), url.host.c_str());
    } else {
      SSL_set_tlsext_host_name(ssl_, url.host.c_str());
      SSL_set1_host(ssl_, url.host.c_str());
    }
    SSL_set_fd(ssl_, fd_.get());
    const auto connect = [&]() -> ssize_t { return SSL_connect(ssl_); };
    return Repeat(connect, POLLIN).status();
  }

  // Calls until it does not have to wait. Returns its count, 0 at the peer's end.
  template <class F>
  StatusOr<size_t> Repeat(F call, int16_t events) {
    while (true) {
      if (ssl_ != nullptr) ERR_clear_error();
      const ssize_t count = call();
      if (count > 0) return static_cast<size_t>(count);
      if (ssl_ == nullptr) {
        if (count == 0) return size_t{0};
        if (errno != EAGAIN && errno != EINTR) return UnavailableError(std::strerror(errno));
      } else {
        const int why = SSL_get_error(ssl_, static_cast<int>(count));
        if (why == SSL_ERROR_ZERO_RETURN) return size_t{0};
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
          return UnavailableError("TLS: " + TlsErrorText());
        }
        events = why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
      }
      RETURN_IF_ERROR(WaitFor(fd_.get(), events, *deadline_));
    }
  }

  UniqueFd fd_;
  const PostDeadline* const deadline_;
  SSL* ssl_ = nullptr;
};

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
  if (loaded != 1) return InvalidArgumentError(authorities + ": " + TlsErrorText());
  return trust;
}

TlsTrust::~TlsTrust() { SSL_CTX_free(static_cast<SSL_CTX*>(context_)); }

namespace {

std::string RequestHead(const HttpUrl& url,
                        const std::vector<std::pair<std::string, std::string>>& headers,
                        size_t body_size) {
  std::string head = "POST " + (url.target.empty() ? "/" : url.target) + " HTTP/1.1\r\n";
  head += "Host: " + url.authority() + "\r\nConnection: close\r\n";
  for (const auto& [name, value] : headers) head.append(name).append(": " + value + "\r\n");
  return head + "Content-Length: " + std::to_string(body_size) + "\r\n\r\n";
}

// The status line and headers, without the empty line after them.
StatusOr<PostReply> ParseHead(std::string_view head, std::optional<size_t>* content_length) {
  PostReply reply;
  const std::vector<std::string_view> lines = Split(head, '\n');
  const std::vector<std::string_view> words = Split(StripAscii(lines.front()), ' ');
  const auto status = words.size() > 1 ? ParseNumber<int>(words[1]) : std::nullopt;
  if (!words.front().starts_with("HTTP/1.") || !status) {
    return UnavailableError("the reply is not HTTP");
  }
  reply.status = *status;
  for (const std::string_view line : lines) {
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const std::string name = ToLower(line.substr(0, colon));
    const std::string_view value = StripAscii(line.substr(colon + 1));
    if (name == "retry-after") reply.retry_after = value;
    if (name == "content-length") *content_length = ParseNumber<size_t>(value);
    if (name == "transfer-encoding") *content_length = 0;
  }
  return reply;
}

}  // namespace

StatusOr<PostReply> HttpPost(const HttpUrl& url,
                             const std::vector<std::pair<std::string, std::string>>& headers,
                             std::string_view body, const TlsTrust* trust,
                             const PostDeadline& deadline) {
  ASSIGN_OR_RETURN(const auto stream, PostStream::Open(url, trust, deadline));
  RETURN_IF_ERROR(stream->Write(RequestHead(url, headers, body.size())));
  RETURN_IF_ERROR(stream->Write(body));
  std::string received;
  size_t head_end;
  while ((head_end = received.find("\r\n\r\n")) == received.npos) {
    if (received.size() > kMaxHeadBytes) return UnavailableError("the reply's head has no end");
    ASSIGN_OR_RETURN(const size_t count, stream->Read(&received));
    if (count == 0) return UnavailableError("the connection was closed before the reply");
  }
  std::optional<size_t> content_length;
  ASSIGN_OR_RETURN(PostReply reply,
                   ParseHead(std::string_view(received).substr(0, head_end), &content_length));
  reply.body = received.substr(head_end + 4);
  const size_t wanted = std::min(content_length.value_or(kMaxBodyBytes), kMaxBodyBytes);
  while (reply.body.size() < wanted) {
    const StatusOr<size_t> count = stream->Read(&reply.body);
    if (!count.ok() || *count == 0) break;  // the status is what counts
  }
  reply.body.resize(std::min(reply.body.size(), wanted));
  return reply;
}

}  // namespace tandem
