#include "frontend/http/session.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <limits>

#include "common/clock.h"
#include "common/log.h"
#include "common/strings.h"

namespace tandem {
namespace http = boost::beast::http;

namespace {

using boost::system::error_code;

constexpr size_t kReadBytes = 64 << 10;        // one read; a thread's scratch space
constexpr size_t kPipelinedBytes = 256 << 10;  // kept while a handler runs
constexpr size_t kSmallBodyBytes = 256 << 10;  // read to the end even when refused
constexpr size_t kLingerBytes = 64 << 20;

double Now() { return SystemClock().Monotonic(); }

// A body that grows with what arrives: a Content-Length alone reserves nothing.
struct GrowingBody {
  using value_type = std::string;
  static uint64_t size(const value_type& body) { return body.size(); }
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(http::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, error_code& error) {
      error = {};
      size_t total = 0;
      for (const auto& part : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(part.data()), part.size());
        total += part.size();
      }
      return total;
    }
    void finish(error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

// RFC 9110's date, made once a second.
std::string_view HttpDate() {
  thread_local time_t made_at = 0;
  thread_local std::array<char, 40> text{};
  const time_t now = ::time(nullptr);
  if (now != made_at) {
    tm parts{};
    gmtime_r(&now, &parts);
    strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    made_at = now;
  }
  return text.data();
}

bool UsableRequestId(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

std::string PeerName(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unknown";
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(in.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(ntohs(in6.sin6_port));
  }
  return "unix";
}

bool Lists(const std::vector<std::string>& list, std::string_view value) {
  return std::any_of(list.begin(), list.end(),
                     [value](const std::string& item) { return item == "*" || item == value; });
}

std::string Joined(const std::vector<std::string>& list) {
  std::string result;
  for (const std::string& item : list) result += result.empty() ? item : ", " + item;
  return result;
}

// "application/json; charset=utf-8" and nothing else but its parameters.
bool IsJson(std::string_view content_type) {
  return ToLower(StripAscii(content_type.substr(0, content_type.find(';')))) == "application/json";
}

}  // namespace

std::string_view ReasonPhrase(int status) {
  const auto phrase = http::obsolete_reason(static_cast<http::status>(status));
  return {phrase.data(), phrase.size()};
}

struct Session::Parser {
  http::request_parser<GrowingBody> beast;
};

// ---- Life ----

Session::Session(HttpServer* server, Shard* shard, int fd, std::unique_ptr<Transport> transport)
    : server_(server),
      shard_(shard),
      socket_(shard, fd),
      transport_(std::move(transport)),
      peer_(PeerName(fd)) {}

Session::~Session() { server_->Remove(this); }

Awaitable<void> Session::Run(std::shared_ptr<Session> self) {
  Session& session = *self;
  session.OnReadable();
  while (!session.closed_) {
    if (!co_await session.ServeOne()) break;
    session.served_one_ = true;
    if (session.server_->draining()) break;
  }
  co_await session.Drain();
  session.MarkClosed();
  session.socket_.Close();
}

void Session::CloseIfIdle() {
  if (!in_exchange_ && in_.empty()) MarkClosed();
}

void Session::MarkClosed() {
  if (std::exchange(closed_, true)) return;
  input_.Set();
  drained_.Set();
  PostClosed();
}

void Session::PostClosed() {
  if (!on_closed_) return;
  shard_->Post([weak = weak_from_this(), number = exchange_number_] {
    const auto self = weak.lock();
    if (self == nullptr || !self->in_exchange_ || self->exchange_number_ != number ||
        !self->on_closed_)
      return;
    std::exchange(self->on_closed_, nullptr)();
  });
}

// ---- Input ----

void Session::WatchReads() {
  reading_ = true;
  socket_.NotifyReadable([this] { OnReadable(); });
}

void Session::OnReadable() {
  thread_local std::array<char, kReadBytes> scratch;
  reading_ = false;
  while (!closed_) {
    if (!discarding_ && in_.size() >= kPipelinedBytes) return;  // resumed by MoreInput
    const ssize_t n = transport_->Read(scratch.data(), scratch.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      // A TLS handshake may have left bytes to write; reading again is what moves it on.
      WatchReads();
      return;
    }
    if (n <= 0) {
      MarkClosed();
      return;
    }
    if (discarding_) {
      discarded_ += static_cast<size_t>(n);
      if (discarded_ > kLingerBytes) MarkClosed();
      continue;
    }
    if (in_.empty()) {
      first_byte_unix_ = SystemClock().Unix();
      first_byte_monotonic_ = Now();
    }
    in_.append(scratch.data(), static_cast<size_t>(n));
    input_.Set();
  }
}

Awaitable<bool> Session::MoreInput(double deadline) {
  if (closed_) co_return false;
  input_.Reset();
  const size_t before = in_.size();
  if (!reading_) OnReadable();
  if (in_.size() > before) co_return !closed_;
  const bool in_time = co_await input_.WaitUntil(deadline);
  co_return in_time && !closed_;
}

Awaitable<Session::Read> Session::ReadHead(Parser& parser) {
  const ServerLimits& limits = server_->options_.limits;
  auto& beast = parser.beast;
  beast.eager(false);
  beast.header_limit(static_cast<uint32_t>(limits.header_bytes));
  if (limits.body_bytes == 0) {
    beast.body_limit(boost::none);
  } else {
    beast.body_limit(limits.body_bytes);
  }

  const double wait_s = served_one_ ? limits.keep_alive_s : limits.head_s;
  if (in_.empty() && !co_await MoreInput(Now() + wait_s)) co_return Read::kClosed;
  if (first_byte_monotonic_ == 0) {  // pipelined: it was here before its turn came
    first_byte_unix_ = SystemClock().Unix();
    first_byte_monotonic_ = Now();
  }
  in_exchange_ = true;
  while (true) {
    error_code error;
    const size_t used = beast.put(boost::asio::buffer(in_), error);
    in_.erase(0, used);
    if (error == http::error::need_more) {
      const double deadline = first_byte_monotonic_ + limits.head_s;
      if (co_await MoreInput(deadline)) continue;
      if (closed_) co_return Read::kClosed;
      Respond(Error(408, "the request's head did not arrive in time"));
      co_return Read::kFailed;
    }
    if (error == http::error::header_limit) {
      Respond(Error(431, "request header fields are larger than " +
                             std::to_string(limits.header_bytes) + " bytes"));
      co_return Read::kFailed;
    }
    if (error == http::error::body_limit) {
      Respond(Error(413,
                    "request body is larger than " + std::to_string(limits.body_bytes) + " bytes"));
      co_return Read::kFailed;
    }
    if (error) {
      Respond(Error(400, "invalid HTTP request"));
      co_return Read::kFailed;
    }
    if (beast.is_header_done()) break;
  }

  const auto& message = beast.get();
  http11_ = message.version() >= 11;
  keep_alive_ = message.keep_alive();
  request_.method = std::string(message.method_string());
  target_ = std::string(message.target());
  int num_headers = 0;
  for (const auto& field : message) {
    request_.headers.emplace_back(ToLower({field.name_string().data(), field.name_string().size()}),
                                  std::string(field.value()));
    ++num_headers;
  }
  if (num_headers > limits.num_headers) {
    Respond(Error(431, "more than " + std::to_string(limits.num_headers) + " header fields"));
    co_return Read::kFailed;
  }
  co_return Read::kOk;
}

Awaitable<Session::Read> Session::ReadBody(Parser& parser) {
  auto& beast = parser.beast;
  const auto refuse = [this](int status, std::string_view message) {
    keep_alive_ = false;
    Respond(Error(status, message));
    return Read::kFailed;
  };
  if (!beast.is_done() && in_.empty() && ToLower(request_.Header("expect")) == "100-continue") {
    Write({"HTTP/1.1 100 Continue\r\n\r\n"});
  }
  beast.eager(true);
  const double deadline = Now() + server_->options_.limits.body_s;
  while (!beast.is_done()) {
    error_code error;
    const size_t used = beast.put(boost::asio::buffer(in_), error);
    in_.erase(0, used);
    if (error == http::error::body_limit) {
      co_return refuse(413, "request body is larger than " +
                                std::to_string(server_->options_.limits.body_bytes) + " bytes");
    }
    if (error && error != http::error::need_more) {
      co_return refuse(400, "invalid HTTP request");
    }
    if (beast.is_done()) break;
    if (used > 0 && !in_.empty() && !error) continue;
    if (co_await MoreInput(deadline)) continue;
    if (closed_) co_return Read::kClosed;
    co_return refuse(408, "the request's body did not arrive in time");
  }
  request_.body = std::move(beast.get().body());
  co_return Read::kOk;
}

// Lets the client read an answer it did not expect yet: closing with unread bytes would reset the
// connection and could destroy the answer on its way.
Awaitable<void> Session::Linger() {
  co_await Drain();
  if (closed_) co_return;
  transport_->Shutdown();
  discarding_ = true;
  in_.clear();
  const double deadline = Now() + server_->options_.limits.linger_s;
  while (co_await MoreInput(deadline)) {
  }
}

// ---- One exchange ----

Awaitable<bool> Session::ServeOne() {
  request_ = HttpRequest();
  target_.clear();
  http11_ = true;
  keep_alive_ = false;
  responded_ = false;
  streaming_ = false;
  stream_ = EventStream(this);
  status_ = 0;
  response_bytes_ = 0;
  ++exchange_number_;
  if (!in_.empty()) first_byte_monotonic_ = 0;

  Parser parser;
  const Read head = co_await ReadHead(parser);
  if (head == Read::kClosed) co_return false;
  request_.arrival_time = first_byte_unix_;
  request_.arrival_monotonic = exchange_began_ = first_byte_monotonic_;
  if (head == Read::kFailed) {
    EndExchange(nullptr, 0);
    co_await Linger();
    co_return false;
  }

  std::string_view target = target_;
  if (const size_t scheme = target.find("://"); !target.starts_with('/') && scheme != target.npos) {
    const size_t path = target.find('/', scheme + 3);
    target = path == target.npos ? "/" : target.substr(path);
  }
  const size_t question = target.find('?');
  request_.path = std::string(target.substr(0, question));
  if (question != target.npos) request_.query = std::string(target.substr(question + 1));
  const std::string_view id = request_.Header("x-request-id");
  request_.request_id = UsableRequestId(id) ? std::string(id) : RandomHex(32);

  server_->num_exchanges_.fetch_add(1, std::memory_order_relaxed);
  const Router::Match match = server_->router_.Find(request_.method, request_.path);
  const auto& beast = parser.beast;
  const auto length = beast.content_length();
  const bool has_body = !beast.is_done();
  std::optional<Response> refusal = Refuse(match, has_body);
  bool linger = false;
  if (refusal && has_body && (!length || *length > kSmallBodyBytes)) {
    // Not worth reading: answer now and let the rest of the body go by.
    keep_alive_ = false;
    linger = true;
  } else {
    switch (co_await ReadBody(parser)) {
      case Read::kOk:
        break;
      case Read::kFailed:
        linger = true;
        break;
      case Read::kClosed:
        EndExchange(match.route, 0);
        server_->num_exchanges_.fetch_sub(1, std::memory_order_relaxed);
        co_return false;
    }
  }
  const double request_bytes = length ? static_cast<double>(*length) : 0;
  if (refusal && !responded_) Respond(std::move(*refusal));
  if (!responded_) co_await RunHandler(*match.route);
  EndExchange(match.route, request_bytes);
  server_->num_exchanges_.fetch_sub(1, std::memory_order_relaxed);
  if (linger) {
    co_await Linger();
    co_return false;
  }
  co_await Drain();
  co_return keep_alive_ && !closed_;
}

std::optional<Response> Session::Preflight() const {
  if (request_.method != "OPTIONS" || CorsOrigin().empty()) return std::nullopt;
  const std::string_view method = request_.Header("access-control-request-method");
  if (method.empty()) return std::nullopt;
  const CorsOptions& cors = server_->options_.cors;
  if (!Lists(cors.methods, method)) {
    return Response{400, "Disallowed CORS method", "text/plain; charset=utf-8", {}};
  }
  Response response{200, "OK", "text/plain; charset=utf-8", {}};
  const bool any_method = Lists(cors.methods, "*");
  response.headers.emplace_back(
      "access-control-allow-methods",
      any_method ? "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT" : Joined(cors.methods));
  const std::string_view headers = request_.Header("access-control-request-headers");
  if (!headers.empty()) {
    response.headers.emplace_back("access-control-allow-headers", Lists(cors.headers, "*")
                                                                      ? std::string(headers)
                                                                      : Joined(cors.headers));
  }
  response.headers.emplace_back("access-control-max-age", "600");
  return response;
}

std::optional<Response> Session::Refuse(const Router::Match& match, bool has_body) const {
  if (auto preflight = Preflight()) return preflight;
  if (match.route == nullptr) {
    if (match.allow.empty())
      return Response{404, R"({"detail":"Not Found"})", "application/json", {}};
    return Response{
        405, R"({"detail":"Method Not Allowed"})", "application/json", {{"allow", match.allow}}};
  }
  const Route& route = *match.route;
  if (server_->draining() && !route.during_drain) {
    Response response = Error(503, "the server is shutting down");
    response.headers.emplace_back("retry-after", "1");
    return response;
  }
  if (route.guarded && !Authorized()) {
    return Response{
        401, R"({"error":"Unauthorized"})", "application/json", {{"www-authenticate", "Bearer"}}};
  }
  if (route.json_body && request_.method == "POST" && has_body &&
      !IsJson(request_.Header("content-type"))) {
    return Error(400, "Unsupported Media Type: Only 'application/json' is allowed");
  }
  const std::string expect = ToLower(request_.Header("expect"));
  if (!expect.empty() && expect != "100-continue") return Error(417, "unknown expectation");
  return std::nullopt;
}

Awaitable<void> Session::RunHandler(const Route& route) {
  Exchange exchange(this);
  co_await route.handler(exchange);
  on_closed_ = nullptr;
  if (closed_) co_return;
  if (!responded_) {
    LOG_ERROR << "the handler of " << route.path << " gave no answer";
    Respond(Error(500, "internal error"));
  }
  if (streaming_ && !stream_.finished_) MarkClosed();
}

void Session::EndExchange(const Route* route, double request_bytes) {
  in_exchange_ = false;
  on_closed_ = nullptr;
  // 499 as in other servers' logs: the client left before there was an answer.
  const int status = status_ == 0 ? 499 : status_;
  const ServerOptions& options = server_->options_;
  const bool counted = route == nullptr || route->counted;
  if (options.on_exchange_end) {
    options.on_exchange_end({route == nullptr ? std::string_view("none") : route->path,
                             request_.method, status, counted, request_bytes, response_bytes_,
                             Now() - exchange_began_});
  }
  if (!options.access_log || !counted) return;
  const auto& excluded = options.access_log_excluded;
  if (std::find(excluded.begin(), excluded.end(), request_.path) != excluded.end()) return;
  LOG_INFO << peer_ << " - \"" << request_.method << ' ' << std::string_view(target_).substr(0, 256)
           << " HTTP/1." << (http11_ ? 1 : 0) << "\" " << status << ' ' << ReasonPhrase(status);
}

bool Session::Authorized() const {
  const auto& keys = server_->options_.api_keys;
  if (keys.empty()) return true;
  const std::string_view header = request_.Header("authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (header.size() < kScheme.size() || ToLower(header.substr(0, kScheme.size())) != kScheme) {
    return false;
  }
  const std::string_view given = header.substr(kScheme.size());
  bool found = false;
  for (const std::string& key : keys) found |= ConstantTimeEqual(key, given);
  return found;
}

std::string_view Session::CorsOrigin() const {
  const std::string_view origin = request_.Header("origin");
  return !origin.empty() && Lists(server_->options_.cors.origins, origin) ? origin
                                                                          : std::string_view();
}

Response Session::Error(int status, std::string_view message) const {
  return server_->options_.error(status, message);
}

// ---- Output ----

std::string Session::RenderHead(int status, std::string_view content_type,
                                const HeaderList& headers,
                                std::optional<size_t> content_length) const {
  std::string head = http11_ ? "HTTP/1.1 " : "HTTP/1.0 ";
  head.reserve(256);
  head.append(std::to_string(status)).append(" ").append(ReasonPhrase(status)).append("\r\ndate: ");
  head.append(HttpDate()).append("\r\nserver: tandem\r\n");
  const auto add = [&head](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (!content_type.empty()) add("content-type", content_type);
  if (content_length) {
    add("content-length", std::to_string(*content_length));
  } else if (http11_) {
    add("transfer-encoding", "chunked");
  }
  if (!keep_alive_) add("connection", "close");
  if (keep_alive_ && !http11_) add("connection", "keep-alive");
  for (const auto& [name, value] : headers) add(name, value);
  if (server_->options_.request_id_headers && !request_.request_id.empty()) {
    add("x-request-id", request_.request_id);
  }
  if (const std::string_view origin = CorsOrigin(); !origin.empty()) {
    const CorsOptions& cors = server_->options_.cors;
    const bool any = Lists(cors.origins, "*") && !cors.credentials;
    add("access-control-allow-origin", any ? "*" : origin);
    if (cors.credentials) add("access-control-allow-credentials", "true");
    if (!any) add("vary", "Origin");
  }
  return head.append("\r\n");
}

void Session::Respond(Response response) {
  CHECK(!responded_) << "two answers to " << request_.path;
  responded_ = true;
  status_ = response.status;
  if (closed_) return;
  if (server_->draining()) keep_alive_ = false;
  response_bytes_ = static_cast<double>(response.body.size());
  const std::string head =
      RenderHead(response.status, response.body.empty() ? "" : response.content_type,
                 response.headers, response.body.size());
  if (request_.method == "HEAD") {
    Write({head});
  } else {
    Write({head, response.body});
  }
}

EventStream& Session::StartEventStream(HeaderList headers) {
  CHECK(!responded_) << "two answers to " << request_.path;
  responded_ = true;
  streaming_ = true;
  status_ = 200;
  if (closed_) return stream_;
  if (!http11_ || server_->draining()) keep_alive_ = false;
  headers.emplace_back("cache-control", "no-cache");
  headers.emplace_back("x-accel-buffering", "no");
  Write({RenderHead(200, "text/event-stream; charset=utf-8", headers, std::nullopt)});
  KeepStreamAlive();
  return stream_;
}

// Proxies cut connections that are silent; a comment is something that clients skip.
void Session::KeepStreamAlive() {
  const double interval = server_->options_.sse_keep_alive_s;
  if (interval <= 0) return;
  shard_->At(Now() + interval,
             [weak = weak_from_this(), number = exchange_number_, seen = response_sends_] {
               const auto self = weak.lock();
               if (self == nullptr || self->exchange_number_ != number || self->closed_) return;
               if (!self->in_exchange_ || self->stream_.finished_) return;
               if (self->response_sends_ == seen) self->SendChunk(": keep-alive\n\n");
               self->KeepStreamAlive();
             });
}

bool Session::SendChunk(std::string_view events) {
  if (events.empty()) return true;
  ++response_sends_;
  if (http11_) {
    std::array<char, 20> size;
    auto [end, error] = std::to_chars(size.data(), size.data() + 16, events.size(), 16);
    *end++ = '\r';
    *end++ = '\n';
    Write({std::string_view(size.data(), static_cast<size_t>(end - size.data())), events, "\r\n"});
  } else {
    Write({events});
  }
  if (unsent() > server_->options_.limits.unsent_bytes_per_stream) {
    LOG_WARNING << peer_ << " reads too slowly: " << unsent() << " bytes unsent, stream closed";
    stream_.lagging_ = true;
    MarkClosed();
  }
  return !closed_;
}

void Session::FinishStream() {
  stream_.finished_ = true;
  if (http11_) Write({"0\r\n\r\n"});
}

void Session::OnClosed(std::function<void()> callback) {
  on_closed_ = std::move(callback);
  if (closed_) PostClosed();
}

// Straight to the kernel when nothing is queued: no copy, one system call.
void Session::Write(std::initializer_list<std::string_view> parts) {
  if (closed_) return;
  size_t sent = 0;
  if (unsent() == 0) {
    std::array<iovec, 4> vectors;
    int num_vectors = 0;
    for (const std::string_view part : parts) {
      vectors[static_cast<size_t>(num_vectors++)] = {const_cast<char*>(part.data()), part.size()};
    }
    ssize_t n;
    do {
      n = transport_->Write(vectors.data(), num_vectors);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN) {
      MarkClosed();
      return;
    }
    sent = n < 0 ? 0 : static_cast<size_t>(n);
  }
  for (std::string_view part : parts) {
    const size_t skip = std::min(sent, part.size());
    sent -= skip;
    backlog_.append(part.substr(skip));
  }
  if (unsent() > 0 && !writing_) WatchWrites();
}

void Session::WatchWrites() {
  writing_ = true;
  socket_.NotifyWritable([this] { OnWritable(); });
}

void Session::OnWritable() {
  writing_ = false;
  while (!closed_ && unsent() > 0) {
    const iovec rest{backlog_.data() + backlog_sent_, unsent()};
    const ssize_t n = transport_->Write(&rest, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      MarkClosed();
      return;
    }
    backlog_sent_ += static_cast<size_t>(n);
  }
  if (unsent() == 0) {
    backlog_sent_ = 0;
    if (backlog_.capacity() > kReadBytes) {
      backlog_ = std::string();
    } else {
      backlog_.clear();
    }
    drained_.Set();
    return;
  }
  if (backlog_sent_ > backlog_.size() / 2) {
    backlog_.erase(0, backlog_sent_);
    backlog_sent_ = 0;
  }
  if (!closed_) WatchWrites();
}

Awaitable<void> Session::Drain() {
  while (!closed_ && unsent() > 0) {
    const size_t before = unsent();
    drained_.Reset();
    const bool drained = co_await drained_.WaitUntil(Now() + server_->options_.limits.write_s);
    if (!drained && unsent() == before) MarkClosed();
  }
}

// ---- What handlers see ----

const HttpRequest& Exchange::request() const { return session_->request_; }
HttpRequest& Exchange::mutable_request() { return session_->request_; }
Shard& Exchange::shard() const { return session_->shard(); }
void Exchange::Respond(Response response) { session_->Respond(std::move(response)); }
EventStream& Exchange::StartEventStream(HeaderList headers) {
  return session_->StartEventStream(std::move(headers));
}
bool Exchange::responded() const { return session_->responded_; }
bool Exchange::closed() const { return session_->closed_; }
void Exchange::OnClosed(std::function<void()> callback) { session_->OnClosed(std::move(callback)); }

}  // namespace tandem
