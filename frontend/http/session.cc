#include "frontend/http/session.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <memory>
#include <sstream>

#include "common/clock.h"
#include "common/log.h"
#include "common/log_event.h"
#include "common/strings.h"
#include "frontend/http/request_checks.h"

namespace tandem {

namespace {

constexpr size_t kSmallBodyBytes = 256 << 10;  // of a refused request; read to the end
constexpr size_t kLoggedMethodBytes = 16;
constexpr size_t kLoggedTargetBytes = 256;
constexpr int kClientGone = 499;  // as in other servers' logs: it left before the response

double Now() { return SystemClock().Monotonic(); }

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

// Skips empty lines before a request (RFC 9112, 2.2). The first half of one stays.
void SkipEmptyLines(std::string* in) {
  size_t end = 0;
  while (in->compare(end, 2, "\r\n") == 0) end += 2;
  in->erase(0, end);
}

// A proxy may pass paths on as they came, or without the part that chose this server.
std::string WithoutRoot(std::string path, std::string_view root) {
  if (root.empty() || !path.starts_with(root)) return path;
  if (path.size() == root.size()) return "/";
  return path[root.size()] == '/' ? path.substr(root.size()) : path;
}

}  // namespace

// ---- Life ----

Session::Session(HttpServer* server, Shard* shard, int fd, std::unique_ptr<Transport> transport)
    : server_(server),
      shard_(shard),
      connection_(shard, fd, std::move(transport), [this] { PostClosed(); }) {}

Session::~Session() { server_->Remove(this); }

Awaitable<void> Session::Run(std::shared_ptr<Session> self) {
  Session& session = *self;
  session.connection_.Start();
  while (!session.connection_.closed()) {
    if (!co_await session.ServeOne()) break;
    session.served_one_ = true;
    if (session.server_->draining()) break;
  }
  co_await session.connection_.Drain(session.options().limits.write_s);
  // Over TLS the end is announced, so that nobody takes it for bytes that were cut off.
  if (!session.connection_.closed()) session.connection_.ShutdownWrites();
  session.connection_.Close();
}

void Session::CloseIfIdle() {
  if (served_one_ || Now() - idle_since_ >= options().limits.linger_s) CloseBetweenRequests();
}

void Session::CloseIfLongIdle() {
  if (Now() - idle_since_ >= options().limits.retired_idle_s) CloseBetweenRequests();
}

void Session::CloseBetweenRequests() {
  if (!idle_ || !connection_.in().empty()) return;
  connection_.ShutdownWrites();
  connection_.MarkClosed();
}

void Session::CutUnlessAdmitted() {
  if (!turn_.admitted) connection_.MarkClosed();
}

// ---- One exchange ----

Awaitable<bool> Session::ServeOne() {
  // Assigned an empty one, a string keeps its memory: an idle connection would hold its last body.
  std::destroy_at(&turn_);
  std::construct_at(&turn_);
  stream_ = EventStream(this);
  ++exchange_number_;
  connection_.BeginRequest();
  const bool has_begun = co_await AwaitRequest();
  if (!has_begun) co_return false;
  RequestReader reader(options().limits);
  Read result = co_await ReadHead(reader);
  if (result == Read::kClosed) co_return false;
  if (result == Read::kOk) {
    result = co_await ServeHead(reader);
  } else {
    EndExchange(nullptr, 0);
  }
  if (result == Read::kFailed) co_await Linger();
  if (result != Read::kOk) co_return false;
  co_return turn_.keep_alive && !connection_.closed();
}

Session::Read Session::RefuseRead(int status, std::string_view message) {
  turn_.keep_alive = false;
  Respond(options().error(turn_.request.path, status, message));
  return Read::kFailed;
}

// Idle until the first byte of a request is there.
Awaitable<bool> Session::AwaitRequest() {
  const ServerLimits& limits = options().limits;
  double wait_s = served_one_ ? limits.keep_alive_s : limits.head_s;
  if (server_->retired()) wait_s = std::min(wait_s, limits.retired_idle_s);
  const double deadline = Now() + wait_s;
  std::string& in = connection_.in();
  for (SkipEmptyLines(&in); in.empty() || in == "\r"; SkipEmptyLines(&in)) {
    connection_.BeginRequest();
    connection_.ReleaseMemory();
    idle_ = true;
    idle_since_ = Now();
    const bool arrived = co_await connection_.MoreInput(deadline);
    idle_ = false;
    if (!arrived) co_return false;
  }
  co_return true;
}

Awaitable<Session::Read> Session::ReadHead(RequestReader& reader) {
  const ServerLimits& limits = options().limits;
  in_exchange_ = true;
  turn_.began = connection_.arrival().monotonic_s;
  while (true) {
    const RequestReader::Step step = reader.Read(&connection_.in());
    if (step == RequestReader::Step::kFailed) {
      // The announced body is too large, but the head is whole.
      if (reader.error_status() == 413) TakeHead(reader);
      co_return RefuseRead(reader.error_status(), reader.error());
    }
    if (step == RequestReader::Step::kHead) break;
    if (co_await connection_.MoreInput(turn_.began + limits.head_s)) continue;
    if (connection_.input_ended()) co_return Read::kClosed;
    co_return RefuseRead(408, "the request's head did not arrive in time");
  }
  TakeHead(reader);
  co_return Read::kOk;
}

void Session::TakeHead(RequestReader& reader) {
  HttpRequest& request = turn_.request;
  request = reader.TakeHead();
  request.path = WithoutRoot(std::move(request.path), options().root_path);
  request.arrival_time = connection_.arrival().unix_s;
  request.arrival_monotonic = turn_.began;
  const std::string_view id = request.Header("x-request-id");
  request.request_id = UsableRequestId(id) ? std::string(id) : RandomHex(32);
  turn_.target = reader.target();
  turn_.http11 = reader.http11();
  turn_.keep_alive = reader.keep_alive();
}

Awaitable<Session::Read> Session::ReadBody(RequestReader& reader) {
  if (reader.has_body() && connection_.in().empty() &&
      ToLower(turn_.request.Header("expect")) == "100-continue") {
    connection_.Write({"HTTP/1.1 100 Continue\r\n\r\n"});
  }
  const double deadline = Now() + options().limits.body_s;
  while (true) {
    const RequestReader::Step step = reader.Read(&connection_.in());
    if (step == RequestReader::Step::kFailed) {
      co_return RefuseRead(reader.error_status(), reader.error());
    }
    if (step == RequestReader::Step::kDone) break;
    if (co_await connection_.MoreInput(deadline)) continue;
    if (connection_.input_ended()) co_return Read::kClosed;
    co_return RefuseRead(408, "the request's body did not arrive in time");
  }
  turn_.request.body = reader.TakeBody();
  co_return Read::kOk;
}

// From a complete head to the last byte of the response.
Awaitable<Session::Read> Session::ServeHead(RequestReader& reader) {
  const Router::Match match = server_->router_.Find(turn_.request.method, turn_.request.path);
  const auto length = reader.content_length();
  std::optional<Response> refusal = Refusal(options(), server_->api_keys_, match, turn_.request,
                                            reader.has_body(), server_->draining());
  if (!refusal) refusal = TakeKeyPlace(*match.route);
  if (!refusal && options().salts_by_key) {
    turn_.request.client_salt = server_->api_keys_.SaltOf(turn_.request);
  }
  turn_.admitted = !refusal && !match.route->during_drain;
  if (turn_.admitted) ++server_->num_requests_;
  Read result = Read::kOk;
  if (refusal && reader.has_body() && (!length || *length > kSmallBodyBytes)) {
    // Not worth reading: respond now and drop the rest of the body.
    turn_.keep_alive = false;
    result = Read::kFailed;
  } else {
    result = co_await ReadBody(reader);
  }
  if (result != Read::kClosed && !turn_.responded) {
    if (refusal) {
      Respond(*refusal);
    } else {
      co_await RunHandler(*match.route);
    }
  }
  EndExchange(match.route, length ? static_cast<double>(*length) : 0);
  if (result == Read::kOk) co_await connection_.Drain(options().limits.write_s);
  turn_.key_place.reset();
  if (std::exchange(turn_.admitted, false)) server_->RequestEnded();
  co_return result;
}

// The refusal of a request whose key has too many open ones.
std::optional<Response> Session::TakeKeyPlace(const Route& route) {
  const int64_t limit = server_->api_keys_.places_per_key();
  if (limit == 0 || !route.guarded || turn_.request.method != "POST") return std::nullopt;
  turn_.key_place = server_->api_keys_.TakePlace(turn_.request);
  if (turn_.key_place != nullptr) return std::nullopt;
  Response response =
      options().error(turn_.request.path, 429,
                      "this API key has " + std::to_string(limit) +
                          " open requests, which is the limit; try again when one has ended");
  response.headers.emplace_back("retry-after", "1");
  return response;
}

Awaitable<void> Session::RunHandler(const Route& route) {
  Exchange exchange(this);
  co_await route.handler(exchange);
  on_closed_ = nullptr;
  if (connection_.closed()) co_return;
  if (!turn_.responded && connection_.input_ended()) {
    connection_.MarkClosed();  // the handler gave up, as OnClosed requires
    co_return;
  }
  if (!turn_.responded) {
    LOG_ERROR << "the handler of " << route.path << " returned without a response";
    Respond(options().error(turn_.request.path, 500, "internal error"));
  }
  if (turn_.streaming && !stream_.finished_) connection_.MarkClosed();
}

void Session::EndExchange(const Route* route, double request_bytes) {
  in_exchange_ = false;
  on_closed_ = nullptr;
  const int status = turn_.status == 0 ? kClientGone : turn_.status;
  const bool counted = route == nullptr || route->counted;
  const std::string_view handler = route == nullptr ? std::string_view("none") : route->path;
  if (options().on_exchange_end) {
    options().on_exchange_end({handler, turn_.request.method, status, counted, request_bytes,
                               turn_.response_bytes, Now() - turn_.began});
  }
  if (options().disable_access_log || !counted) return;
  const auto& excluded = options().access_log_excluded;
  if (std::find(excluded.begin(), excluded.end(), turn_.request.path) != excluded.end()) return;
  if (!LogEnabled(LogLevel::kInfo)) return;
  const std::string_view method =
      std::string_view(turn_.request.method).substr(0, kLoggedMethodBytes);
  const std::string_view target = std::string_view(turn_.target).substr(0, kLoggedTargetBytes);
  std::ostringstream line;
  line << connection_.peer() << " - \"" << method << ' ' << target << " HTTP/1."
       << (turn_.http11 ? 1 : 0) << "\" " << status << ' ' << ReasonPhrase(status);
  const std::string text = line.str();
  LOG_EVENT(LogLevel::kInfo, text)
      .AddToJson("id", turn_.request.request_id)
      .AddToJson("client", connection_.peer())
      .AddToJson("method", method)
      .AddToJson("target", target)
      .AddToJson("status", status)
      .AddToJson("request_bytes", static_cast<int64_t>(request_bytes))
      .AddToJson("response_bytes", static_cast<int64_t>(turn_.response_bytes))
      .AddMsToJson("duration_ms", Now() - turn_.began);
}

// Lets the client read a response that it does not expect yet: closing with unread bytes would
// reset the connection and could destroy the response on its way.
Awaitable<void> Session::Linger() {
  co_await connection_.Drain(options().limits.write_s);
  if (connection_.closed()) co_return;
  connection_.ShutdownWrites();
  connection_.Discard();
  co_await connection_.MoreInput(Now() + options().limits.linger_s);
}

// ---- Responses ----

std::string Session::RenderHead(int status, std::string_view content_type,
                                const HeaderList& headers,
                                std::optional<size_t> content_length) const {
  std::string head = turn_.http11 ? "HTTP/1.1 " : "HTTP/1.0 ";
  head.reserve(256);
  head.append(std::to_string(status)).append(" ").append(ReasonPhrase(status));
  head.append("\r\ndate: ").append(HttpDate()).append("\r\nserver: tandem\r\n");
  const auto add = [&head](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (!content_type.empty()) add("content-type", content_type);
  if (content_length) {
    add("content-length", std::to_string(*content_length));
  } else if (turn_.http11) {
    add("transfer-encoding", "chunked");
  }
  if (!turn_.keep_alive) add("connection", "close");
  if (turn_.keep_alive && !turn_.http11) add("connection", "keep-alive");
  for (const auto& [name, value] : headers) add(name, value);
  if (options().request_id_headers && !turn_.request.request_id.empty()) {
    add("x-request-id", turn_.request.request_id);
  }
  for (const auto& [name, value] : CorsHeaders(options().cors, turn_.request)) add(name, value);
  return head.append("\r\n");
}

void Session::Respond(const Response& response) {
  CHECK(!turn_.responded) << "two responses to " << turn_.request.path;
  turn_.responded = true;
  turn_.status = response.status;
  if (connection_.closed()) return;
  if (server_->closes_connections()) turn_.keep_alive = false;
  turn_.response_bytes = static_cast<double>(response.body.size());
  std::string_view type;
  if (!response.body.empty()) type = response.content_type;
  const std::string head =
      RenderHead(response.status, type, response.headers, response.body.size());
  const bool head_only = turn_.request.method == "HEAD";
  connection_.Write({head, head_only ? std::string_view() : response.body});
}

EventStream& Session::StartEventStream(HeaderList headers) {
  CHECK(!turn_.responded) << "two responses to " << turn_.request.path;
  turn_.responded = true;
  turn_.streaming = true;
  turn_.status = 200;
  if (connection_.closed()) return stream_;
  if (!turn_.http11 || server_->closes_connections()) turn_.keep_alive = false;
  headers.emplace_back("cache-control", "no-cache");
  headers.emplace_back("x-accel-buffering", "no");
  connection_.Write({RenderHead(200, "text/event-stream; charset=utf-8", headers, std::nullopt)});
  KeepStreamAlive();
  return stream_;
}

// Proxies cut silent connections; clients skip a comment.
void Session::KeepStreamAlive() {
  const auto interval = static_cast<double>(options().sse_keep_alive_s);
  if (interval <= 0) return;
  shard_->At(Now() + interval,
             [weak = weak_from_this(), number = exchange_number_, seen = num_events_sent_] {
               const auto self = weak.lock();
               if (self == nullptr || self->exchange_number_ != number || !self->in_exchange_)
                 return;
               if (self->connection_.closed() || self->stream_.finished_) return;
               if (self->num_events_sent_ == seen) self->SendChunk(": keep-alive\n\n");
               self->KeepStreamAlive();
             });
}

bool Session::SendChunk(std::string_view events) {
  if (events.empty()) return true;
  ++num_events_sent_;
  if (turn_.http11) {
    std::array<char, 20> size;
    auto [end, error] = std::to_chars(size.data(), size.data() + 16, events.size(), 16);
    *end++ = '\r';
    *end++ = '\n';
    connection_.Write(
        {std::string_view(size.data(), static_cast<size_t>(end - size.data())), events, "\r\n"});
  } else {
    connection_.Write({events});
  }
  if (static_cast<int64_t>(connection_.unsent()) > options().limits.unsent_bytes_per_stream) {
    LOG_WARNING << connection_.peer() << " reads too slowly: " << connection_.unsent()
                << " bytes unsent, stream closed";
    stream_.lagging_ = true;
    connection_.MarkClosed();
  }
  return !connection_.closed();
}

void Session::FinishStream() {
  stream_.finished_ = true;
  if (turn_.http11) connection_.Write({"0\r\n\r\n"});
}

void Session::OnClosed(std::function<void()> callback) {
  on_closed_ = std::move(callback);
  if (connection_.input_ended()) PostClosed();
}

// Posted, so that no handler is called back in the middle of its own Send.
void Session::PostClosed() {
  if (!on_closed_) return;
  shard_->Post([weak = weak_from_this(), number = exchange_number_] {
    const auto self = weak.lock();
    if (self == nullptr || !self->in_exchange_ || self->exchange_number_ != number) return;
    if (self->on_closed_) std::exchange(self->on_closed_, nullptr)();
  });
}

// ---- Exchange and EventStream ----

const HttpRequest& Exchange::request() const { return session_->turn_.request; }
HttpRequest& Exchange::mutable_request() { return session_->turn_.request; }
Shard& Exchange::shard() const { return session_->shard(); }
void Exchange::Respond(const Response& response) { session_->Respond(response); }
EventStream& Exchange::StartEventStream(HeaderList headers) {
  return session_->StartEventStream(std::move(headers));
}
bool Exchange::responded() const { return session_->turn_.responded; }
bool Exchange::closed() const { return session_->connection_.input_ended(); }
void Exchange::OnClosed(std::function<void()> callback) { session_->OnClosed(std::move(callback)); }

}  // namespace tandem
