#pragma once

// One connection to a server: TCP or UNIX, plain or TLS, never blocking its shard.
// Thread: the shard's. A ServerPeer is resolved once and may be shared by all connections.
// Failure: UNAVAILABLE with the system's words when the server refuses, resets or is cut by Abort.

#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "deploy/cli/bench/server_url.h"
#include "frontend/net/net.h"

namespace tandem {

// The server's addresses, and for https what certificates are trusted. Immutable.
class ServerPeer {
 public:
  // Looks the name up (blocks). `insecure` takes any certificate.
  static StatusOr<std::unique_ptr<ServerPeer>> Resolve(const ServerUrl& url, bool insecure);
  ~ServerPeer();
  ServerPeer(const ServerPeer&) = delete;

 private:
  friend class ClientSocket;
  struct Address {
    sockaddr_storage storage{};
    socklen_t size = 0;
  };
  ServerPeer() = default;
  std::string host_;
  std::vector<Address> addresses_;
  void* tls_ = nullptr;  // SSL_CTX; null for plain connections
};

class ClientSocket {
 public:
  ClientSocket(Shard* shard, const ServerPeer* peer) : shard_(shard), peer_(peer) {}
  ~ClientSocket();
  ClientSocket(const ClientSocket&) = delete;

  // Tries the addresses in order; with TLS the server's certificate is checked.
  Awaitable<Status> Connect();
  // All of it.
  Awaitable<Status> Write(std::string_view bytes);
  // At least one byte; 0 at the end of the stream.
  Awaitable<StatusOr<size_t>> Read(char* data, size_t size);

  // Whether the connection can be reused: the server has neither closed it nor sent anything.
  bool IsIdle() const;
  // Waits on this connection end with an error.
  void Abort();

 private:
  enum class Need { kNothing, kReadable, kWritable };
  Awaitable<Status> ConnectTo(const ServerPeer::Address& address);
  Awaitable<Status> Handshake();
  Need TlsNeed(int result) const;
  void Close();

  Shard* shard_;
  const ServerPeer* peer_;
  std::optional<Socket> socket_;
  void* tls_ = nullptr;         // SSL
  bool may_have_more_ = false;  // the last read took all the room it had
};

}  // namespace tandem
