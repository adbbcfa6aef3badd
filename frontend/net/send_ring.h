#pragma once

// Small sends to many sockets in one system call: io_uring, where the kernel has it and no filter
// of system calls forbids it; a send for each socket otherwise, with the same results. What it
// saves: docs/developer/figures.md, frontend CPU per streamed token. Nothing waits for a socket:
// what a full one does not take is the caller's again. Thread: that of its first Send.

#include <sys/types.h>

#include <memory>
#include <span>
#include <string_view>

namespace tandem {

struct SocketSend {
  int fd = -1;
  std::string_view bytes;
  ssize_t result = 0;  // of the Send: the bytes that were taken, or -errno
};

class SendRing {
 public:
  static constexpr size_t kMaxSends = 64;

  enum class Means { kRing, kCalls };
  explicit SendRing(Means means = Means::kRing);
  ~SendRing();
  SendRing(const SendRing&) = delete;

  // REQUIRES: at most kMaxSends, each to another socket.
  void Send(std::span<SocketSend> sends);
  bool uses_ring() const { return means_ == Means::kRing; }  // until a call of it has failed

 private:
  struct State;
  bool Open();
  size_t SendThroughRing(std::span<SocketSend> sends);  // how many, from the first on
  void GiveUp(int error);

  Means means_;
  std::unique_ptr<State> state_;  // opened by the first Send
};

}  // namespace tandem
