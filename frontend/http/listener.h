#pragma once

// The HTTP server: binds, accepts, spreads connections over the shards, drains.
// Thread: Listen and the constructor before the shards start or on any one thread; BeginDrain and
// CloseAll from any thread. Owns the listening socket and the sessions' shared state; must outlive
// the shards' threads. A port in use is a Status from Listen. Times are seconds, sizes bytes.
// A drain waits for the requests that were let in before it. Until they have their answers, new
// connections are taken as ever: probes are answered and everything else is told 503. What has
// not ended shortly after the last of those answers is cut, so no probe and no client that sends
// slowly holds the end up.

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

  // Closes idle connections; requests that still come get 503, other than probes. A socket from
  // systemd is given up at once: who connects to it waits for the next process.
  void BeginDrain();
  // Listens no more and cuts what is open; the handlers' OnClosed callbacks run.
  void CloseAll();
  // `ended` is called on the first shard once the drain is over and no connection is left.
  void WhenDrained(Task ended);

  int num_connections() const { return num_connections_; }
  // Requests that were let in, probes not among them, and are not answered to the last byte.
  int num_requests() const { return num_requests_; }
  bool draining() const { return draining_; }

 private:
  friend class Session;
  void Accept();
  void Adopt(int fd, Shard* shard);
  void Remove(Session* session);
  void RequestEnded();
  void StopListening();
  void AdvanceDrain();
  void OnEachSession(void (Session::*act)());
  Status BindTcp();
  Status BindUnix();

  const ServerOptions options_;
  const Router router_;
  const std::vector<Shard*> shards_;
  // Sessions of each shard; touched on that shard only.
  std::vector<std::vector<Session*>> sessions_;
  int listen_fd_ = -1;                // until the acceptor has it
  std::unique_ptr<Socket> acceptor_;  // first shard
  bool is_inherited_ = false;         // from systemd
  int port_ = 0;
  std::string address_;
  std::string uds_to_remove_;
  size_t next_shard_ = 0;
  bool is_leaving_ = false;  // first shard; nothing is left that the drain waits for
  Task drained_;             // first shard
  // The default memory order: who ends the last request sees that a drain has begun, or the drain
  // sees that none is left.
  std::atomic<int> num_connections_{0};
  std::atomic<int> num_requests_{0};
  std::atomic<bool> draining_{false};
};

}  // namespace tandem
