#pragma once

// Requests, responses and the route table: what a handler sees of HTTP.
// Thread: a request and its exchange belong to one shard. Handlers are coroutines on that shard; a
// handler ends after it responded, or when the client is gone.

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/http/sse.h"
#include "frontend/net/net.h"

namespace tandem {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // upper case
  std::string path;    // without query, percent-decoding not applied
  std::string query;   // after '?', may be empty
  HeaderList headers;  // names in lower case, in order of arrival
  std::string body;
  // Stamped when the first byte of the request was read.
  double arrival_time = 0;       // unix seconds
  double arrival_monotonic = 0;  // CLOCK_MONOTONIC seconds
  // The client's X-Request-Id when it is usable (1 to 128 printable ASCII characters), else 32
  // random hex digits. Response ids are made from it.
  std::string request_id;

  // The first header of that name (lower case), or "".
  std::string_view Header(std::string_view name) const;
  // The value of ?name=value, percent-decoded, or "".
  std::string Query(std::string_view name) const;
  // The path after that prefix, percent-decoded; "" when it has another.
  std::string PathAfter(std::string_view prefix) const;
  // Each value of a name that may come several times, in order.
  std::vector<std::string> QueryAll(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HeaderList headers;  // Content-Length, Date, X-Request-Id and CORS headers are added on sending
};

// One request and the way to answer it. Respond or StartEventStream exactly once; when the client
// is gone both are accepted and do nothing.
class Exchange {
 public:
  const HttpRequest& request() const;
  HttpRequest& mutable_request();  // to move the body out
  Shard& shard() const;

  void Respond(Response response);
  // Sends the response head (200, text/event-stream) and gives the stream; valid until the handler
  // ends. Finish it, or the connection is cut (so that a client sees an incomplete answer).
  EventStream& StartEventStream(HeaderList headers = {});
  bool responded() const;

  // The client went away, was too slow, or the server ends: stop working for it. The callback runs
  // once, from the shard's loop, also when the client had gone before it was set; never after the
  // handler ended. The read side is watched all the time, whatever the handler waits for.
  // Its end is what a client that goes away looks like, and one that has only sent all it will: an
  // answer that is there at once still reaches the second, so only who waits need ask.
  bool closed() const;
  void OnClosed(std::function<void()> callback);

 private:
  friend class Session;
  explicit Exchange(Session* session) : session_(session) {}
  Session* session_;
};

using Handler = std::function<Awaitable<void>(Exchange&)>;

// One row of the table. The defaults are the safe ones: an endpoint is guarded unless its row says
// otherwise.
struct Route {
  std::string method;  // "GET", "POST"; GET answers HEAD too
  std::string path;    // exact, or a prefix when it ends in '*'
  Handler handler;
  bool guarded = true;        // needs the API key, when one is set
  bool counted = true;        // in the http_* metrics and the access log
  bool json_body = true;      // a body must be application/json (POST rows only)
  bool during_drain = false;  // still answered while the server drains (probes, metrics)
};

class Router {
 public:
  explicit Router(std::vector<Route> routes) : routes_(std::move(routes)) {}

  struct Match {
    const Route* route = nullptr;  // null: see allow
    std::string allow;             // methods the path has, "GET, POST"; empty: unknown path
  };
  Match Find(std::string_view method, std::string_view path) const;

 private:
  std::vector<Route> routes_;
};

// "Not Found" for 404; "" for a code HTTP does not know.
std::string_view ReasonPhrase(int status);

// Compares without a timing that depends on the contents.
bool ConstantTimeEqual(std::string_view a, std::string_view b);

}  // namespace tandem
