#pragma once

// The socket on which clients connect: opened here, passed by systemd (sd_listen_fds(3)), or
// inherited from the frontend that serves until now. Processes that share it share one queue
// of connections, so none is refused while one stops accepting and another begins.
// Thread: a value. Failure: INVALID_ARGUMENT for an address that cannot be, ALREADY_EXISTS for one
// in use.

#include <string>

#include "common/status.h"
#include "common/unique_fd.h"
#include "frontend/http/server_options.h"

namespace tandem {

struct ListeningSocket {
  UniqueFd fd;
  bool is_from_systemd = false;
  std::string path;  // of a UNIX socket that is ours to remove; else empty

  int port() const;  // the bound one; 0: none
  ListeningSocket Share() const;
};

// systemd's, if it passes one to this process; else a new one at host and port, or at uds.
StatusOr<ListeningSocket> OpenListeningSocket(const ServerSettings& settings);

// OK if the settings would open a socket at the address where this one listens; systemd's listens
// where systemd wants.
Status CheckListensThere(const ListeningSocket& socket, const ServerSettings& settings);

}  // namespace tandem
