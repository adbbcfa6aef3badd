#pragma once

// The HTTP server: binds, accepts, spreads connections over the shards, drains.
// Thread: Listen and the constructor before the shards start or on any one thread; BeginDrain and
// CloseAll from any thread. Owns the listening socket and the sessions' shared state; must outlive
// the shards' threads. A port in use is a Status from Listen. Times are seconds, sizes bytes.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "frontend/http/router.h"
#include "frontend/http/server_options.h"
#include "frontend/net/net.h"

namespace tandem {

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
