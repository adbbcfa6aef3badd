#pragma once

// UNIX sockets of packets between frontends of one user, at paths in the folder where they meet.
// Thread: any. Failure: Status.

#include <sys/types.h>

#include <string>

#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

// A socket that is bound there, non-blocking. type: SOCK_DGRAM, SOCK_SEQPACKET.
StatusOr<UniqueFd> BindAt(const std::string& path, int type);
// One that is connected to.
StatusOr<UniqueFd> ListenAt(const std::string& path);
// Connected to one that listens, non-blocking.
StatusOr<UniqueFd> ConnectAt(const std::string& path);
// The process at the other end; 0: it is another user's.
pid_t PeerOf(int fd);

}  // namespace tandem
