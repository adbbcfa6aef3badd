#pragma once

// Addresses at which engines pass KV on: "unix:/path" for one host, "tcp://host:port" between
// hosts. Names of hosts are resolved when an engine starts; a reader takes numbers alone, so that
// nothing waits for a name server while requests do.
// Thread: any. Failure: INVALID_ARGUMENT for a text that is no address, else the system's error.

#include <string>
#include <string_view>

#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

struct KvAddress {
  std::string path = {};  // of a unix socket; empty: tcp
  std::string host = {};
  int port = 0;  // 0: any free one

  bool is_unix() const { return !path.empty(); }
  // Bytes to it do not leave this host.
  bool is_local() const;
  std::string ToString() const;
  // As kv_transfer_params name it: remote_host is "unix:/path" or the host of a remote_port.
  std::string RemoteHost() const { return is_unix() ? "unix:" + path : host; }

  static StatusOr<KvAddress> Parse(std::string_view text);
  // host: an IP address, "localhost" or "unix:/path".
  static StatusOr<KvAddress> OfRemote(const std::string& host, int64_t port);
};

// A socket that listens, without blocking. The host's name becomes a number and port 0 the real
// one. A unix socket that no process listens at is replaced; its file is this user's alone.
StatusOr<UniqueFd> ListenAt(KvAddress* address);

// A connection that is made or under way, without blocking.
StatusOr<UniqueFd> ConnectTo(const KvAddress& address);
// Once it can be written to: whether it was made. PERMISSION_DENIED: a unix socket whose other end
// is neither this user's process nor root's.
Status CheckConnected(int socket, const KvAddress& address);

}  // namespace tandem
