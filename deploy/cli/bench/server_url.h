#pragma once

// Where a server listens: http://host[:port][/prefix], https://…, or unix:/path/of/socket. Values.

#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

struct ServerUrl {
  bool tls = false;
  std::string host;  // without brackets; empty for a UNIX socket
  std::string port;
  std::string prefix;       // of every path; no slash at its end
  std::string socket_path;  // of a UNIX socket

  std::string HostHeader() const;
};

// INVALID_ARGUMENT: the message names the missing part.
StatusOr<ServerUrl> ParseServerUrl(std::string_view url);

// "http://host:port", brackets around an IPv6 address.
std::string UrlOfHostAndPort(const std::string& host, int64_t port);

}  // namespace tandem
