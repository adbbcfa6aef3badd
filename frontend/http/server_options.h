#pragma once

// The operator's settings of the HTTP server, and all its limits. Values; const once the server is
// built. Times are seconds, sizes bytes.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/http/router.h"
#include "frontend/http/transport.h"

namespace tandem {

struct ServerLimits {
  int64_t body_bytes = 64 << 20;    // over it: 413; 0: no limit
  int64_t header_bytes = 64 << 10;  // over it: 431
  int64_t num_headers = 256;        // over it: 431
  int64_t num_connections = 16384;  // over it: 503 and closed
  int64_t unsent_bytes_per_stream = 1 << 20;
  int64_t requests_per_key = 0;  // at the start; open POST requests, over it: 429; 0: any
  double keep_alive_s = 5;       // idle between two requests
  double head_s = 30;            // from the first byte (or accept) to the end of the head: 408
  double body_s = 120;           // from the head to the end of the body: 408
  double write_s = 30;           // while the client reads nothing
  double linger_s = 2;  // for a client to read a refusal or, at the end, to send its first request
  double retired_idle_s = 5;  // at most keep_alive_s, once another process serves
};

struct CorsOptions {
  std::vector<std::string> origins;  // "*" allows all; empty: CORS headers are never sent
  std::vector<std::string> methods = {"*"};
  std::vector<std::string> headers = {"*"};
  bool credentials = false;
};

// The facts about a finished exchange, for metrics.
struct ExchangeRecord {
  std::string_view handler;  // the row's path, or "none"
  std::string_view method;
  int status;
  bool counted;           // the row's flag; true for "none"
  double request_bytes;   // Content-Length
  double response_bytes;  // Content-Length; 0 when streamed
  double duration_s;
};

// What flags set.
struct ServerSettings {
  std::string host;                   // name or address; empty: all interfaces
  int64_t port = 8000;                // 0: any free one
  std::string uds;                    // path of a UNIX socket; replaces host and port
  std::string root_path;              // where a proxy has the server; removed where a path has it
  std::vector<std::string> api_keys;  // at the start; none: every request may pass
  bool salts_by_key = false;          // requests get HttpRequest::client_salt
  CorsOptions cors;
  bool request_id_headers = true;
  int64_t sse_keep_alive_s = 0;  // silence after which a stream gets a comment; 0: never
  bool disable_access_log = false;
  std::vector<std::string> access_log_excluded;  // paths
  ServerLimits limits;
};

// What the server is built with.
struct ServerOptions : ServerSettings {
  ServerOptions() = default;
  explicit ServerOptions(ServerSettings settings) : ServerSettings(std::move(settings)) {}

  std::shared_ptr<const TlsContext> tls;  // at the start; null: plain HTTP
  // The API's response to a request that is refused here; http knows the status codes, not the
  // bodies. path: "" when the head could not be read.
  std::function<Response(std::string_view path, int status, std::string_view message)> error;
  std::function<void(const ExchangeRecord&)> on_exchange_end;  // any shard; may be empty
};

}  // namespace tandem
