#include "deploy/cli/hub/web_get.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <vector>

#include "common/strings.h"
#include "common/version.h"

namespace tandem {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;
using View = boost::beast::string_view;

constexpr uint32_t kMaxHeadBytes = 64 << 10;
constexpr size_t kReadBytes = 256 << 10;
constexpr int kMaxRedirects = 10;

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

class ReplyParser final : public http::basic_parser<false> {
 public:
  explicit ReplyParser(const BodySink& sink) : sink_(sink) {
    eager(true);
    body_limit(boost::none);
    header_limit(kMaxHeadBytes);
  }

  WebReply reply;
  bool is_sated = false;  // the sink wants no more

 private:
  void on_request_impl(http::verb, View, View, int, error_code&) override {}
  void on_response_impl(int code, View, int, error_code&) override { reply.status = code; }
  void on_field_impl(http::field, View name, View value, error_code&) override {
    reply.headers[ToLower(std::string_view(name.data(), name.size()))] =
        std::string(value.data(), value.size());
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(View piece, error_code& error) override { return Take(piece, error); }
  void on_chunk_header_impl(uint64_t, View, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, View piece, error_code& error) override {
    return Take(piece, error);
  }
  void on_finish_impl(error_code&) override {}

  size_t Take(View piece, error_code& error) {
    is_sated = IsRedirect(reply.status) ||
               (!piece.empty() && !sink_(reply, std::string_view(piece.data(), piece.size())));
    if (is_sated) error = http::error::end_of_stream;  // any error ends the parsing
    return piece.size();
  }

  const BodySink& sink_;
};

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

// Feeds the parser until the response or the connection ends. What TLS or TCP report after the head
// is a cut, not an error.
Status ReadReply(WebConnection* connection, ReplyParser* parser) {
  std::vector<char> buffer(kReadBytes);
  std::string unread;
  while (!parser->is_done()) {
    const StatusOr<size_t> count = connection->stream().Read(buffer.data(), buffer.size());
    if (!count.ok() || *count == 0) {
      if (!parser->is_header_done()) {
        return count.ok() ? UnavailableError("the connection was closed before the response")
                          : count.status();
      }
      error_code error;
      parser->put_eof(error);  // the end of a body without a length
      parser->reply.was_cut = error || !count.ok();
      return OkStatus();
    }
    unread.append(buffer.data(), *count);
    std::string_view bytes = unread;
    while (!bytes.empty() && !parser->is_done()) {
      error_code error;
      const size_t used = parser->put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
      bytes.remove_prefix(used);
      if (parser->is_sated) return OkStatus();
      if (error == http::error::need_more) break;
      if (error) return UnavailableError("the response is not HTTP: " + error.message());
    }
    unread.erase(0, unread.size() - bytes.size());
  }
  return OkStatus();
}

StatusOr<WebReply> GetOnce(const WebRequest& request, const WebUrl& url, const TlsTrust& trust,
                           double silence_s, const BodySink& sink) {
  ASSIGN_OR_RETURN(const auto connection, WebConnection::Open(url, trust, silence_s));
  ReplyParser parser(sink);
  parser.reply.url = url;
  Status status = connection->stream().Write(RequestText(request, url, *connection));
  if (status.ok()) status = ReadReply(connection.get(), &parser);
  if (!status.ok()) return status.WithContext(url.Origin());
  return std::move(parser.reply);
}

}  // namespace

std::string WebReply::Header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

StatusOr<WebReply> HttpGet(const WebRequest& request, const TlsTrust& trust, double silence_s,
                           const BodySink& sink) {
  WebUrl url = request.url;
  for (int i = 0; i <= kMaxRedirects; ++i) {
    ASSIGN_OR_RETURN(WebReply reply, GetOnce(request, url, trust, silence_s, sink));
    if (!IsRedirect(reply.status)) return reply;
    StatusOr<WebUrl> next = ResolveLocation(url, reply.Header("location"));
    if (!next.ok()) return next.status().WithContext("a redirect by " + url.Origin());
    if (url.is_tls && !next->is_tls) {
      return InvalidArgumentError("a redirect by " + url.Origin() + " to " + next->Origin() +
                                  " is refused: it leaves TLS");
    }
    next->user.clear();
    url = *std::move(next);
  }
  return InvalidArgumentError(request.url.Origin() + " redirects more than " +
                              std::to_string(kMaxRedirects) + " times");
}

}  // namespace tandem
