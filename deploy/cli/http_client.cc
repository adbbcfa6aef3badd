#include "deploy/cli/http_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/http.hpp>
#include <cmath>
#include <optional>
#include <vector>

#include "common/unix_address.h"
#include "deploy/cli/sse_parser.h"
#include "frontend/web/http_response.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

using Endpoint = asio::generic::stream_protocol::endpoint;

constexpr int kHttpOk = 200;

Status TransportError(const error_code& error, const std::string& where) {
  if (error == asio::error::interrupted) return CancelledError("interrupted");
  return UnavailableError("no response from " + where + ": " + error.message());
}

error_code LastError() { return {errno, boost::system::system_category()}; }

// A blocking socket whose waits are limited: TIMED_OUT, or INTERRUPTED by a signal. Asio's own
// blocking calls have neither.
class TimedSocket {
 public:
  TimedSocket(asio::io_context* context, const sigset_t* wait_mask)
      : socket_(*context), wait_mask_(wait_mask) {}
  void set_timeout(double seconds) {
    timeout_.tv_sec = static_cast<time_t>(seconds);
    timeout_.tv_nsec = static_cast<int64_t>((seconds - std::floor(seconds)) * 1e9);
  }

  error_code Connect(const Endpoint& endpoint) {
    error_code error;
    socket_.close(error);
    socket_.open(endpoint.protocol(), error);
    if (error) return error;
    const int fd = socket_.native_handle();
    const int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    if (connect(fd, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0) {
      if (errno != EINPROGRESS) return LastError();
      if (error = WaitFor(POLLOUT); error) return error;
      int refused = 0;
      socklen_t size = sizeof refused;
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &refused, &size);
      if (refused != 0) return {refused, boost::system::system_category()};
    }
    fcntl(fd, F_SETFL, flags);
    return {};
  }

  // The interface that Beast requires of a stream. The forms that throw must exist but are not
  // called.
  template <class Buffers>
  size_t read_some(const Buffers& buffers);
  template <class Buffers>
  size_t write_some(const Buffers& buffers);
  template <class Buffers>
  size_t read_some(const Buffers& buffers, error_code& error) {
    error = WaitFor(POLLIN);
    return error ? 0 : socket_.read_some(buffers, error);
  }
  template <class Buffers>
  size_t write_some(const Buffers& buffers, error_code& error) {
    error = WaitFor(POLLOUT);
    return error ? 0 : socket_.write_some(buffers, error);
  }

 private:
  error_code WaitFor(int16_t events) {
    pollfd ready = {.fd = socket_.native_handle(), .events = events, .revents = 0};
    const int count = ppoll(&ready, 1, &timeout_, wait_mask_);
    if (count < 0) return LastError();
    return count == 0 ? make_error_code(asio::error::timed_out) : error_code();
  }

  asio::generic::stream_protocol::socket socket_;
  timespec timeout_ = {};
  const sigset_t* wait_mask_;
};

http::request<http::string_body> MakeRequest(http::verb verb, const std::string& target,
                                             const std::string& host, const std::string& api_key,
                                             std::string body) {
  http::request<http::string_body> request(verb, target, 11);
  request.set(http::field::host, host.empty() ? "localhost" : host);
  request.set(http::field::user_agent, "tandem");
  request.set(http::field::connection, "close");
  if (!api_key.empty()) request.set(http::field::authorization, "Bearer " + api_key);
  if (verb == http::verb::post) request.set(http::field::content_type, "application/json");
  request.body() = std::move(body);
  request.prepare_payload();
  return request;
}

// The server's addresses. Of a UNIX socket the host is empty and the port is the path.
StatusOr<std::vector<Endpoint>> Resolve(const std::string& host, const std::string& port,
                                        const std::string& where, asio::io_context* context) {
  if (host.empty()) {
    RETURN_IF_ERROR(UnixAddress(port).status());  // asio would throw
    return std::vector<Endpoint>{asio::local::stream_protocol::endpoint(port)};
  }
  error_code error;
  asio::ip::tcp::resolver resolver(*context);
  const auto found = resolver.resolve(host, port, error);
  if (error) return TransportError(error, where);
  std::vector<Endpoint> endpoints;
  for (const auto& entry : found) endpoints.emplace_back(entry.endpoint());
  return endpoints;
}

// Sends the request and reads the response in pieces; on_body gets each piece and returns whether
// to read on.
StatusOr<int> Exchange(const std::string& host, const std::string& port,
                       const HttpTimeouts& timeouts,
                       const http::request<http::string_body>& request,
                       const std::function<bool(int status, std::string_view piece)>& on_body) {
  const std::string where = host.empty() ? "unix:" + port : "http://" + host + ":" + port;
  error_code error;
  asio::io_context context;
  ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints, Resolve(host, port, where, &context));
  TimedSocket socket(&context, timeouts.wait_mask);
  socket.set_timeout(timeouts.connect_s);
  for (const Endpoint& endpoint : endpoints) {
    error = socket.Connect(endpoint);
    if (!error || error == asio::error::interrupted) break;
  }
  if (error) return TransportError(error, where);
  socket.set_timeout(timeouts.silence_s);
  http::write(socket, request, error);
  if (error) return TransportError(error, where);

  bool is_sated = false;
  HttpResponse* reading = nullptr;
  HttpResponse response([&](std::string_view piece) {
    is_sated = !on_body(reading->status_code(), piece);
    return is_sated ? CancelledError("no more is wanted") : OkStatus();
  });
  reading = &response;
  char buffer[16384];
  while (!response.done() && !is_sated) {
    const size_t count = socket.read_some(asio::buffer(buffer), error);
    if (error && error != asio::error::eof) return TransportError(error, where);
    const Status read = error ? response.End() : response.Feed(std::string_view(buffer, count));
    if (!read.ok() && !is_sated) {
      return UnavailableError("no response from " + where + ": " + read.message());
    }
  }
  return response.status_code();
}

}  // namespace

StatusOr<HttpClient> HttpClient::ForUrl(std::string_view url, std::string api_key,
                                        HttpTimeouts timeouts) {
  constexpr std::string_view kScheme = "http://";
  constexpr std::string_view kUnix = "unix:";
  if (url.starts_with(kUnix) && url.size() > kUnix.size()) {
    HttpClient client;
    client.api_key_ = std::move(api_key);
    client.timeouts_ = timeouts;
    client.port_ = std::string(url.substr(kUnix.size()));
    return client;
  }
  if (!url.starts_with(kScheme)) {
    return InvalidArgumentError("--url is '" + std::string(url) +
                                "', must start with http:// or unix:");
  }
  url.remove_prefix(kScheme.size());
  HttpClient client;
  client.api_key_ = std::move(api_key);
  client.timeouts_ = timeouts;
  const size_t slash = url.find('/');
  std::string_view authority = url.substr(0, slash);
  if (slash != url.npos) {
    client.prefix_ = std::string(url.substr(slash));
    while (client.prefix_.ends_with('/')) client.prefix_.pop_back();
  }
  const size_t colon = authority.ends_with(']') ? authority.npos : authority.rfind(':');
  client.host_ = std::string(authority.substr(0, colon));
  client.port_ = colon == authority.npos ? "80" : std::string(authority.substr(colon + 1));
  if (client.host_.starts_with('[') && client.host_.ends_with(']')) {
    client.host_ = client.host_.substr(1, client.host_.size() - 2);
  }
  if (client.host_.empty() || client.port_.empty()) {
    return InvalidArgumentError("--url has no host or an empty port");
  }
  return client;
}

StatusOr<HttpReply> HttpClient::Get(std::string_view path) const {
  HttpReply reply;
  ASSIGN_OR_RETURN(reply.status, Exchange(host_, port_, timeouts_,
                                          MakeRequest(http::verb::get, prefix_ + std::string(path),
                                                      host_, api_key_, ""),
                                          [&reply](int, std::string_view piece) {
                                            reply.body += piece;
                                            return reply.body.size() <= kMaxReplyBytes;
                                          }));
  if (reply.body.size() > kMaxReplyBytes) {
    return UnavailableError(std::string(path) + ": the response has more than " +
                            std::to_string(kMaxReplyBytes) + " bytes");
  }
  return reply;
}

StatusOr<HttpReply> HttpClient::PostForEvents(
    std::string_view path, std::string json,
    const std::function<bool(std::string_view data)>& on_event) const {
  HttpReply reply;
  SseParser parser;
  const auto request =
      MakeRequest(http::verb::post, prefix_ + std::string(path), host_, api_key_, std::move(json));
  ASSIGN_OR_RETURN(reply.status, Exchange(host_, port_, timeouts_, request,
                                          [&](int status, std::string_view piece) {
                                            if (status == kHttpOk)
                                              return parser.Feed(piece, on_event);
                                            reply.body += piece;
                                            return true;
                                          }));
  return reply;
}

}  // namespace tandem
