#pragma once

// How a packet of a helper program, or of a process that it forked, begins. Pure; any thread.

#include <string>
#include <string_view>

#include "common/packets.h"
#include "common/status.h"
#include "common/utf8.h"

namespace tandem {

enum class ReplyKind : char {
  kBegun = 'b',  // the job has its process, whose pidfd comes along; another packet follows
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

// Its message, in UTF-8 whatever the process sent: a library that quotes a stranger's text may cut
// it within a character.
inline std::string ErrorOf(const Packet& reply) {
  std::string message;
  AppendLossyUtf8(std::string_view(reply.bytes).substr(1), &message);
  return message;
}

}  // namespace tandem
