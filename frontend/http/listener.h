#pragma once

// The HTTP server: binds, accepts, spreads connections over the shards, drains.
// Thread: the constructor, Listen and Inherit before the shards start; BeginDrain and CloseAll from
// any thread. Owns the listening socket and the sessions' shared state; must outlive
// the shards' threads. A port in use is a Status from Listen. Times are seconds, sizes bytes.
// A drain waits for the requests that were admitted before it began. Until they have their
// responses, new connections are still accepted: probes are served, all other requests get 503.
// Connections that are still open shortly after the last of those responses are cut, so that no
// probe and no slow sender delays the end.
// A server retires when another process serves with its listening socket: it accepts nothing more,
// but every request on a connection that it has is served. It asks clients to close (Connection:
// close), and a connection is closed when it has been idle for retired_idle_s, not at once: its
// client may be sending.

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "frontend/http/api_keys.h"
#include "frontend/http/listening_socket.h"
#include "frontend/http/router.h"
#include "frontend/http/server_options.h"
#include "frontend/net/net.h"

namespace tandem {

class Session;

class HttpServer {
 public:
  // Connections go to the shards in turn; the first shard accepts them.
  HttpServer(ServerOptions options, Router router, std::vector<Shard*> shards);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  // Uses the socket that systemd passes (LISTEN_FDS), if there is one.
  Status Listen();
  // In place of Listen: connections wait until StartAccepting.
  void Inherit(ListeningSocket socket);
  void StartAccepting();  // before the shards start, or on the first one
  // For another process. REQUIRES: listening; the first shard.
  ListeningSocket ShareListener() const { return listener_.Share(); }
  void Retire();                                           // the first shard
  int port() const { return port_; }                       // the bound one; 0 with a UNIX socket
  const std::string& address() const { return address_; }  // "http://127.0.0.1:8000"

  // Closes idle connections, if they are not new; new requests other than probes get 503. A socket
  // from systemd is released at once: clients that connect to it wait for the next process.
  void BeginDrain();
  // Stops listening and cuts open connections; the handlers' OnClosed callbacks run.
  void CloseAll();
  // Runs `ended` on the first shard once no connection is left after a drain or a retirement.
  void WhenDrained(Task ended);

  // Requests that arrive from now on are checked against these. Any thread.
  void ReplaceApiKeys(std::vector<std::string> keys, int64_t requests_per_key) {
    api_keys_.Replace(std::move(keys));
    api_keys_.SetPlacesPerKey(requests_per_key);
  }

  // Connections that are accepted from now on use these certificates. REQUIRES: the server speaks
  // TLS. Any thread.
  void ReplaceTls(std::shared_ptr<const TlsContext> tls) { tls_ = std::move(tls); }

  int num_connections() const { return num_connections_; }
  // Admitted requests, without probes, whose responses are not sent to the last byte.
  int num_requests() const { return num_requests_; }
  bool draining() const { return draining_; }
  bool retired() const { return retired_; }
  // Each connection ends with its next response.
  bool closes_connections() const { return draining() || retired(); }

 private:
  friend class Session;
  void Accept();
  void Adopt(int fd, Shard* shard);
  void Remove(Session* session);
  void RequestEnded();
  void StopListening();
  void AdvanceDrain();
  void OnEachSession(void (Session::*act)());

  const ServerOptions options_;
  std::atomic<std::shared_ptr<const TlsContext>> tls_;  // null: plain HTTP
  ApiKeys api_keys_;
  const Router router_;
  const std::vector<Shard*> shards_;
  // Sessions of each shard; touched on that shard only.
  std::vector<std::vector<Session*>> sessions_;
  ListeningSocket listener_;          // first shard
  std::unique_ptr<Socket> acceptor_;  // likewise; has the same socket
  bool owns_path_ = false;            // likewise; of the listening socket
  int port_ = 0;
  std::string address_;
  size_t next_shard_ = 0;
  bool is_leaving_ = false;  // first shard; the drain waits for nothing any more
  Task drained_;             // first shard
  // The default memory order: either the thread that ends the last request sees that a drain has
  // begun, or the drain sees that no request is left.
  std::atomic<int> num_connections_{0};
  std::atomic<int> num_requests_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> retired_{false};
};

}  // namespace tandem
