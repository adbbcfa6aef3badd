#pragma once

// Two connected UNIX sockets whose calls do not wait. Thread: any, one at a time. Failure: a pair
// that cannot be made ends the test program.

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "common/check.h"

namespace tandem {

class SocketPair {
 public:
  SocketPair() { CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds_.data()), 0); }
  ~SocketPair() {
    ClosePeer();
    if (fds_[0] >= 0) ::close(fds_[0]);
  }
  SocketPair(const SocketPair&) = delete;

  int fd() const { return fds_[0]; }
  int TakeFd() { return std::exchange(fds_[0], -1); }  // the caller closes it
  int peer() const { return fds_[1]; }
  void ClosePeer() {
    if (fds_[1] >= 0) ::close(std::exchange(fds_[1], -1));
  }
  // What has reached the peer, at most a MiB.
  std::string ReadAtPeer() const {
    std::string text(1 << 20, '\0');
    const ssize_t n = ::read(fds_[1], text.data(), text.size());
    text.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return text;
  }

 private:
  std::array<int, 2> fds_ = {-1, -1};
};

}  // namespace tandem
