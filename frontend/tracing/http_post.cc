#include "frontend/tracing/http_post.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "common/clock.h"
#include "common/strings.h"

namespace tandem {
namespace {

constexpr size_t kMaxHeadBytes = 64 << 10;
constexpr size_t kMaxBodyBytes = 64 << 10;
constexpr size_t kReadBytes = 4096;
// The deadline may move while a socket is waited for; it is read so often.
constexpr double kLongestWait = 0.1;

SocketWait WaitUntil(const PostDeadline& deadline) {
  return [&deadline](int fd, int16_t events) -> Status {
    while (true) {
      const double left = deadline() - SystemClock().Monotonic();
      if (left <= 0) return Status(StatusCode::kDeadlineExceeded, "no reply in time");
      pollfd ready = {.fd = fd, .events = events, .revents = 0};
      const int count = poll(&ready, 1, 1 + static_cast<int>(std::min(left, kLongestWait) * 1e3));
      if (count > 0) return OkStatus();
      if (count < 0 && errno != EINTR) return UnavailableError(std::strerror(errno));
    }
  };
}

// Appends what is there; 0 at the end.
StatusOr<size_t> Append(ClientStream* stream, std::string* to) {
  const size_t size = to->size();
  to->resize(size + kReadBytes);
  StatusOr<size_t> count = stream->Read(to->data() + size, kReadBytes);
  to->resize(size + (count.ok() ? *count : 0));
  return count;
}

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
  ASSIGN_OR_RETURN(const auto stream, ClientStream::Open(url.host, url.port, WaitUntil(deadline)));
  if (url.is_tls) RETURN_IF_ERROR(stream->BeginTls(url.host, *trust));
  RETURN_IF_ERROR(stream->Write(RequestHead(url, headers, body.size())));
  RETURN_IF_ERROR(stream->Write(body));
  std::string received;
  size_t head_end;
  while ((head_end = received.find("\r\n\r\n")) == received.npos) {
    if (received.size() > kMaxHeadBytes) return UnavailableError("the reply's head has no end");
    ASSIGN_OR_RETURN(const size_t count, Append(stream.get(), &received));
    if (count == 0) return UnavailableError("the connection was closed before the reply");
  }
  std::optional<size_t> content_length;
  ASSIGN_OR_RETURN(PostReply reply,
                   ParseHead(std::string_view(received).substr(0, head_end), &content_length));
  reply.body = received.substr(head_end + 4);
  const size_t wanted = std::min(content_length.value_or(kMaxBodyBytes), kMaxBodyBytes);
  while (reply.body.size() < wanted) {
    const StatusOr<size_t> count = Append(stream.get(), &reply.body);
    if (!count.ok() || *count == 0) break;  // the status is what counts
  }
  reply.body.resize(std::min(reply.body.size(), wanted));
  return reply;
}

}  // namespace tandem
