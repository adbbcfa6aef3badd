#include "frontend/net/send_ring.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "tests/support/files/socket_pair.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

SendRing::Means AnyMeans() { return GENERATE(SendRing::Means::kRing, SendRing::Means::kCalls); }

TEST_CASE("each socket gets its bytes, batch after batch") {
  SendRing ring(AnyMeans());
  std::vector<SocketPair> pairs(SendRing::kMaxSends);
  for (size_t num_sends :
       {size_t{1}, size_t{2}, size_t{63}, pairs.size(), pairs.size(), size_t{0}}) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < num_sends; ++i) {
      texts.push_back(std::to_string(num_sends) + " " + std::string(i * 7, 'x'));
    }
    std::vector<SocketSend> sends;
    for (size_t i = 0; i < num_sends; ++i) sends.push_back({pairs[i].fd(), texts[i]});
    ring.Send(sends);
    for (size_t i = 0; i < num_sends; ++i) {
      CHECK(sends[i].result == static_cast<ssize_t>(texts[i].size()));
      CHECK(pairs[i].ReadAtPeer() == texts[i]);
    }
  }
}

TEST_CASE("a full socket and one without a peer concern no other") {
  SendRing ring(AnyMeans());
  SocketPair full, gone, good;
  const std::string much(16 << 20, 'm');
  const ssize_t taken = ::send(full.fd(), much.data(), much.size(), MSG_DONTWAIT);
  REQUIRE(taken > 0);
  gone.ClosePeer();
  std::array<SocketSend, 4> sends = {
      {{full.fd(), much}, {gone.fd(), "a"}, {good.fd(), "b"}, {-1, "c"}}};
  ring.Send(sends);
  CHECK(sends[0].result == -EAGAIN);
  CHECK(sends[1].result == -EPIPE);
  CHECK(sends[2].result == 1);
  CHECK(sends[3].result == -EBADF);
  CHECK(good.ReadAtPeer() == "b");
}

TEST_CASE("what a socket takes of a long text is counted") {
  SendRing ring(AnyMeans());
  SocketPair one, two;
  const std::string much(16 << 20, 'm');
  std::array<SocketSend, 2> sends = {{{one.fd(), much}, {two.fd(), "a"}}};
  ring.Send(sends);
  REQUIRE(sends[0].result > 0);
  CHECK(sends[0].result < static_cast<ssize_t>(much.size()));
  CHECK(sends[1].result == 1);
  ssize_t read = 0;
  for (std::string text = one.ReadAtPeer(); !text.empty(); text = one.ReadAtPeer()) {
    read += static_cast<ssize_t>(text.size());
  }
  CHECK(read == sends[0].result);
}

}  // namespace
}  // namespace tandem
