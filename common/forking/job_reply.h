#pragma once

// How a packet of a helper program, or of a process that it forked, begins. Pure; any thread.

#include <string>
#include <string_view>

#include "common/packets.h"
#include "common/status.h"

namespace tandem {

enum class ReplyKind : char {
  kBegun = 'b',  // the job has its process; another packet follows
  kDone = 'd',   // what follows is the job's
  kError = 'e',  // then the message; the process ends
};

// Sends the reason before the process ends; returns the exit status for that.
inline int FailWith(int socket, const Status& status) {
  std::string reply(1, static_cast<char>(ReplyKind::kError));
  reply += status.message();
  (void)SendPacket(socket, std::string_view(reply).substr(0, kMaxPacketBytes)).ok();
  return 1;
}

inline bool IsBegunReply(const Packet& packet) {
  return packet.bytes[0] == static_cast<char>(ReplyKind::kBegun);
}

inline bool IsErrorReply(const Packet& packet) {
  return packet.bytes[0] == static_cast<char>(ReplyKind::kError);
}

}  // namespace tandem
