#pragma once

// Requests, responses and the route table: the part of HTTP that handlers see.
// Thread: a request and its exchange belong to one shard. Handlers are coroutines on that shard; a
// handler returns after it has responded, or when the client is gone.

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
  std::string path;    // without query, not percent-decoded
  std::string query;   // after '?', may be empty
  HeaderList headers;  // names in lower case, in order of arrival
  std::string body;
  // Stamped when the first byte of the request was read.
  double arrival_time = 0;       // unix seconds
  double arrival_monotonic = 0;  // CLOCK_MONOTONIC seconds
  // The client's X-Request-Id when it is usable (1 to 128 printable ASCII characters), else 32
  // random hex digits. Response ids are made from it.
  std::string request_id;
  // Of the API key, where the server keeps the cached prefixes of keys apart; else "".
  std::string client_salt;

  // The first header with the name (lower case), or "".
  std::string_view Header(std::string_view name) const;
  // The value of ?name=value, percent-decoded, or "".
  std::string Query(std::string_view name) const;
  // The path after the prefix, percent-decoded; "" when it does not start with it.
  std::string PathAfter(std::string_view prefix) const;
  // The part between the index-th slash of the path (from 0) and the next, percent-decoded, or "".
  std::string PathPart(size_t index) const;
  // All values of a name that may occur several times, in order.
  std::vector<std::string> QueryAll(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HeaderList headers;  // Content-Length, Date, X-Request-Id and CORS headers are added on sending
};

// One request and the way to respond to it. Call Respond or StartEventStream exactly once; when the
// client is gone both do nothing.
class Exchange {
 public:
  const HttpRequest& request() const;
  HttpRequest& mutable_request();  // to move the body out
  Shard& shard() const;

  void Respond(const Response& response);
  // Sends the response head (200, text/event-stream) and returns the stream, which is valid until
  // the handler returns. A stream that is not finished by then cuts the connection, so that the
  // client sees an incomplete response.
  EventStream& StartEventStream(HeaderList headers = {});
  bool responded() const;

  // The client went away or was too slow, or the server ends: stop working for it. The callback
  // runs once, from the shard's loop, also when the client had gone before it was set; never after
  // the handler returned. The read side is watched all the time, whatever the handler waits for.
  // Its end may mean that the client went away, or that it has sent all it will and still reads. An
  // immediate response still reaches a client of the second kind, so only handlers that wait need
  // to check.
  bool closed() const;
  void OnClosed(std::function<void()> callback);

 private:
  friend class Session;
  explicit Exchange(Session* session) : session_(session) {}
  Session* session_;
};

using Handler = std::function<Awaitable<void>(Exchange&)>;

// One row of the table. The defaults are the safe ones: an endpoint needs the API key unless its
// row sets guarded to false.
struct Route {
  std::string method;  // "GET", "POST"; GET serves HEAD too
  // Exact, but "{name}" is any part without a slash, "{name:path}" at the end any rest, with
  // slashes, and "*" at the end whatever follows, also nothing. Exact rows hide such rows.
  std::string path;
  Handler handler;
  bool guarded = true;        // needs the API key, if one is set
  bool counted = true;        // in the http_* metrics and the access log
  bool json_body = true;      // a body must be application/json (POST rows only)
  bool during_drain = false;  // served while the server drains (probes, metrics)
  // For /openapi.json; literals. Rows without a description are not in it.
  std::string_view about = {};    // what it does
  std::string_view body = {};     // name of its body's schema; "?" at the end: may be absent
  std::string_view returns = {};  // name of what it responds
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

// "Not Found" for 404; "" for an unknown code.
std::string_view ReasonPhrase(int status);

// Compares in a time that does not depend on the contents.
bool ConstantTimeEqual(std::string_view a, std::string_view b);

}  // namespace tandem
