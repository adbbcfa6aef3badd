#pragma once

// The HTTP server: binds, accepts, spreads connections over the shards, drains.
// Thread: Listen and the constructor before the shards start or on any one thread; BeginDrain and
// CloseAll from any thread. Owns the listening socket and the sessions' shared state; must outlive
// the shards' threads. A port in use is a Status from Listen. Times are seconds, sizes bytes.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "frontend/http/router.h"
#include "frontend/http/transport.h"
#include "frontend/net/net.h"

namespace tandem {

struct ServerLimits {
  size_t body_bytes = 32 << 20;    // over it: 413; 0: no limit
  size_t header_bytes = 64 << 10;  // over it: 431
  int num_headers = 256;           // over it: 431
  int num_connections = 16384;     // over it: 503 and closed
  size_t unsent_bytes_per_stream = 1 << 20;
  double keep_alive_s = 5;  // idle between two requests
  double head_s = 30;       // from the first byte (or accept) to the end of the head: 408
  double body_s = 120;      // from the head to the end of the body: 408
  double write_s = 30;      // without the client reading anything
  double linger_s = 2;      // for a client to read a refusal while it still sends
};

struct CorsOptions {
  std::vector<std::string> origins;  // "*" allows all; empty: CORS headers are never sent
  std::vector<std::string> methods = {"*"};
  std::vector<std::string> headers = {"*"};
  bool credentials = false;
};

// What is known of an exchange when it ended; for metrics.
struct ExchangeRecord {
  std::string_view handler;  // the row's path, or "none"
  std::string_view method;
  int status;
  bool counted;           // the row's flag; true for "none"
  double request_bytes;   // Content-Length
  double response_bytes;  // Content-Length; 0 when streamed
  double duration_s;
};

struct ServerOptions {
  std::string host;  // name or address; empty: all interfaces
  int port = 8000;   // 0: any free one
  std::string uds;   // path of a UNIX socket; replaces host and port
  std::vector<std::string> api_keys;
  CorsOptions cors;
  bool request_id_headers = true;
  double sse_keep_alive_s = 0;  // silence after which a stream gets a comment; 0: never
  bool access_log = true;
  std::vector<std::string> access_log_excluded;  // paths
  ServerLimits limits;
  std::unique_ptr<TlsContext> tls;  // null: plain HTTP
  // The API's error body; http knows the status codes, not their JSON form.
  std::function<Response(int status, std::string_view message)> error;
  std::function<void(const ExchangeRecord&)> on_exchange_end;  // any shard; may be empty
};

class Session;

class HttpServer {
 public:
  // The shards' order is the order connections are dealt in; the first one accepts.
  HttpServer(ServerOptions options, Router router, std::vector<Shard*> shards);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  // Also takes the socket systemd passes (LISTEN_FDS), when there is one.
  Status Listen();
  int port() const { return port_; }                       // the bound one; 0 with a UNIX socket
  const std::string& address() const { return address_; }  // "http://127.0.0.1:8000"

  // Closes the listening socket and idle connections; requests that still come get 503.
  void BeginDrain();
  // Cuts what is open; the handlers' OnClosed callbacks run.
  void CloseAll();
  // `ended` is called on the first shard once no connection is left.
  void WhenDrained(Task ended);

  int num_connections() const { return num_connections_.load(std::memory_order_relaxed); }
  int num_exchanges() const { return num_exchanges_.load(std::memory_order_relaxed); }
  bool draining() const { return draining_.load(std::memory_order_relaxed); }

 private:
  friend class Session;
  void Accept();
  void Adopt(int fd, Shard* shard);
  void Remove(Session* session);
  Status BindTcp();
  Status BindUnix();

  const ServerOptions options_;
  const Router router_;
  const std::vector<Shard*> shards_;
  // Sessions of each shard; touched on that shard only.
  std::vector<std::vector<Session*>> sessions_;
  std::unique_ptr<Socket> acceptor_;  // first shard
  int listen_fd_ = -1;
  int port_ = 0;
  std::string address_;
  std::string uds_to_remove_;
  size_t next_shard_ = 0;
  Task drained_;  // first shard
  std::atomic<int> num_connections_{0};
  std::atomic<int> num_exchanges_{0};
  std::atomic<bool> draining_{false};
};

}  // namespace tandem
