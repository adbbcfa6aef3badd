#pragma once

// Messages over SOCK_SEQPACKET sockets between processes of one host: each arrives whole, with the
// descriptors that were sent beside it.
// Thread: any; one reader per socket at a time, messages of several writers stay whole. Failure:
// the Status of the system call; UNAVAILABLE when the other process is gone.

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

// Longer messages are refused; a sender cuts what may be long.
constexpr size_t kMaxPacketBytes = size_t{64} << 10;

struct Packet {
  std::string bytes;
  std::vector<UniqueFd> fds;
};

StatusOr<std::pair<UniqueFd, UniqueFd>> MakePacketSockets();
Status SendPacket(int socket, std::string_view bytes, std::span<const int> fds = {});
// Waits for a packet, at most timeout_ms (-1: for ever): DEADLINE_EXCEEDED after that.
StatusOr<Packet> ReceivePacket(int socket, int timeout_ms = -1);

// A file in memory that holds these bytes, to be read through its descriptor by another process.
StatusOr<UniqueFd> MakeMemoryFile(const char* name, std::string_view bytes);
StatusOr<std::string> ReadMemoryFile(int fd);

}  // namespace tandem
