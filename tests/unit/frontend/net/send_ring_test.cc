#include "frontend/net/send_ring.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Pair {
  Pair() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()) == 0); }
  ~Pair() {
    ClosePeer();
    ::close(fds[0]);
  }
  void ClosePeer() {
    if (fds[1] >= 0) ::close(fds[1]);
    fds[1] = -1;
  }
  std::string Read() const {
    std::string text(1 << 20, '\0');
    const ssize_t n = ::read(fds[1], text.data(), text.size());
    text.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return text;
  }
  std::array<int, 2> fds = {-1, -1};
};

SendRing::Means AnyMeans() { return GENERATE(SendRing::Means::kRing, SendRing::Means::kCalls); }

TEST_CASE("each socket gets its bytes, batch after batch") {
  SendRing ring(AnyMeans());
  std::vector<Pair> pairs(SendRing::kMaxSends);
  for (size_t num_sends :
       {size_t{1}, size_t{2}, size_t{63}, pairs.size(), pairs.size(), size_t{0}}) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < num_sends; ++i) {
      texts.push_back(std::to_string(num_sends) + " " + std::string(i * 7, 'x'));
    }
    std::vector<SocketSend> sends;
    for (size_t i = 0; i < num_sends; ++i) sends.push_back({pairs[i].fds[0], texts[i]});
    ring.Send(sends);
    for (size_t i = 0; i < num_sends; ++i) {
      CHECK(sends[i].result == static_cast<ssize_t>(texts[i].size()));
      CHECK(pairs[i].Read() == texts[i]);
    }
  }
}

TEST_CASE("a full socket and one without a peer concern no other") {
  SendRing ring(AnyMeans());
  Pair full, gone, good;
  const std::string much(16 << 20, 'm');
  const ssize_t taken = ::send(full.fds[0], much.data(), much.size(), MSG_DONTWAIT);
  REQUIRE(taken > 0);
  gone.ClosePeer();
  std::array<SocketSend, 4> sends = {
      {{full.fds[0], much}, {gone.fds[0], "a"}, {good.fds[0], "b"}, {-1, "c"}}};
  ring.Send(sends);
  CHECK(sends[0].result == -EAGAIN);
  CHECK(sends[1].result == -EPIPE);
  CHECK(sends[2].result == 1);
  CHECK(sends[3].result == -EBADF);
  CHECK(good.Read() == "b");
}

TEST_CASE("what a socket takes of a long text is counted") {
  SendRing ring(AnyMeans());
  Pair one, two;
  const std::string much(16 << 20, 'm');
  std::array<SocketSend, 2> sends = {{{one.fds[0], much}, {two.fds[0], "a"}}};
  ring.Send(sends);
  REQUIRE(sends[0].result > 0);
  CHECK(sends[0].result < static_cast<ssize_t>(much.size()));
  CHECK(sends[1].result == 1);
  ssize_t read = 0;
  for (std::string text = one.Read(); !text.empty(); text = one.Read()) {
    read += static_cast<ssize_t>(text.size());
  }
  CHECK(read == sends[0].result);
}

}  // namespace
}  // namespace tandem
