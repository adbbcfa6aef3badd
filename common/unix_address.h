#pragma once

// The address of a UNIX socket at a path. Thread: any.

#include <sys/socket.h>
#include <sys/un.h>

#include <string_view>

#include "common/status.h"

namespace tandem {

// INVALID_ARGUMENT: the path is empty, does not fit into the address with its terminator, or has a
// NUL in it, which would name another path. A path that begins with a NUL would be an abstract
// name.
StatusOr<sockaddr_un> UnixAddress(std::string_view path);

// As bind, connect and sendto take it.
inline const sockaddr* AsSockaddr(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace tandem
