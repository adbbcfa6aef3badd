#include "frontend/web/web_get.h"

#include <vector>

#include "common/strings.h"
#include "common/version.h"
#include "frontend/web/http_response.h"

namespace tandem {
namespace {

constexpr size_t kReadBytes = 256 << 10;

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string RequestText(const WebRequest& request, const WebUrl& url,
                        const WebConnection& connection) {
  std::string text =
      "GET " + (connection.wants_whole_url() ? url.Text() : url.target) + " HTTP/1.1\r\n";
  text += "Host: " + url.Authority() + "\r\nUser-Agent: tandem/" + kVersion +
          "\r\nAccept: */*\r\nAccept-Encoding: identity\r\nConnection: close\r\n";
  if (!request.credentials.empty() && url.Origin() == request.credentials_origin) {
    text += request.credentials + "\r\n";
  }
  if (connection.wants_whole_url()) text += connection.proxy_line();
  if (request.range) {
    text += "Range: bytes=" + std::to_string(request.range->first) + "-" +
            std::to_string(request.range->second - 1) + "\r\n";
  }
  return text + "\r\n";
}

void TakeHead(const HttpResponse& response, WebReply* reply) {
  reply->status = response.status_code();
  reply->headers = {response.headers().begin(), response.headers().end()};
}

// Until the response or the connection ends, or the sink wants no more. What TLS or TCP report
// after the head is a cut, not an error.
Status ReadReply(WebConnection* connection, bool follows, const BodySink& sink, WebReply* reply) {
  bool is_sated = false;
  HttpResponse* reading = nullptr;
  HttpResponse response([&](std::string_view piece) {
    if (reply->status == 0) TakeHead(*reading, reply);
    is_sated = (follows && IsRedirect(reply->status)) || !sink(*reply, piece);
    return is_sated ? CancelledError("no more is wanted") : OkStatus();
  });
  reading = &response;
  std::vector<char> buffer(kReadBytes);
  while (!response.done() && !is_sated) {
    const StatusOr<size_t> count = connection->stream().Read(buffer.data(), buffer.size());
    if (!count.ok() || *count == 0) {
      if (!response.has_head()) {
        return count.ok() ? UnavailableError("the connection was closed before the response")
                          : count.status();
      }
      reply->was_cut = !response.End().ok() || !count.ok();
      break;
    }
    const Status fed = response.Feed(std::string_view(buffer.data(), *count));
    if (!fed.ok() && !is_sated) return UnavailableError(fed.message());
  }
  if (reply->status == 0) TakeHead(response, reply);
  return OkStatus();
}

StatusOr<WebReply> GetOnce(const WebRequest& request, const WebUrl& url, const WebAccess& access,
                           const BodySink& sink) {
  if (access.check_url) RETURN_IF_ERROR(access.check_url(url));
  ASSIGN_OR_RETURN(const auto connection, WebConnection::Open(url, access));
  WebReply reply;
  reply.url = url;
  Status status = connection->stream().Write(RequestText(request, url, *connection));
  if (status.ok()) status = ReadReply(connection.get(), access.max_redirects > 0, sink, &reply);
  if (!status.ok()) return status.WithContext(url.Origin());
  return reply;
}

}  // namespace

std::string WebReply::Header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

StatusOr<WebReply> HttpGet(const WebRequest& request, const WebAccess& access,
                           const BodySink& sink) {
  WebUrl url = request.url;
  for (int i = 0; i <= access.max_redirects; ++i) {
    ASSIGN_OR_RETURN(WebReply reply, GetOnce(request, url, access, sink));
    if (access.max_redirects == 0 || !IsRedirect(reply.status)) return reply;
    StatusOr<WebUrl> next = ResolveLocation(url, reply.Header("location"));
    if (!next.ok()) {
      return FailedPreconditionError("a redirect by " + url.Origin() + ": " +
                                     next.status().message());
    }
    if (url.is_tls && !next->is_tls) {
      return FailedPreconditionError("a redirect by " + url.Origin() + " to " + next->Origin() +
                                     " is refused: it leaves TLS");
    }
    next->user.clear();
    url = *std::move(next);
  }
  return FailedPreconditionError(request.url.Origin() + " redirects more than " +
                                 std::to_string(access.max_redirects) + " times");
}

}  // namespace tandem
