// What a connection leaves in memory between two requests, whatever it has carried.

#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "test_server.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using namespace std::chrono_literals;

constexpr int kNumConnections = 100;
constexpr size_t kMaxIdleBytes = 3 << 10;

size_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// A client without memory of its own on the heap.
class BareClient {
 public:
  explicit BareClient(int port, int receive_buffer = 0) : client_(port, receive_buffer) {}
  bool Send(std::string_view bytes) { return client_.Send(bytes); }
  // Reads until the bytes so far end with these, at most 4.
  bool ReadUntil(std::string_view end) {
    std::array<char, 16384> bytes;
    std::string last;
    while (!last.ends_with(end)) {
      const ssize_t n = ::recv(client_.fd(), bytes.data(), bytes.size(), 0);
      if (n <= 0) return false;
      const size_t taken = std::min<size_t>(static_cast<size_t>(n), 4);
      last.append(bytes.data() + n - taken, taken);
      if (last.size() > 4) last.erase(0, last.size() - 4);
    }
    return true;
  }

 private:
  Client client_;
};

std::string Post(std::string_view type, size_t body_bytes) {
  return "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: " + std::string(type) +
         "\r\nContent-Length: " + std::to_string(body_bytes) + "\r\n\r\n" +
         std::string(body_bytes - 1, 'x') + "!";
}

// Waits until the shard has done what was due when this was called.
void Settle(TestServer& server) {
  for (int i = 0; i < 4; ++i) {
    std::promise<void> done;
    server.shard().Post([&done] { done.set_value(); });
    REQUIRE(done.get_future().wait_for(20s) == std::future_status::ready);
  }
}

TEST_CASE("an idle connection takes at most 3 kB, whatever it has carried") {
  ServerOptions options;
  options.limits.keep_alive_s = 600;
  TestServer server({EchoRoute()}, std::move(options));
  const std::string small = Post("application/json", 10);
  const std::string large = Post("application/json", 200 << 10);
  const std::string refused = Post("text/plain", 200 << 10);
  const std::function<bool(BareClient&)> exchange = [&]() -> std::function<bool(BareClient&)> {
    const int kind = GENERATE(0, 1, 2, 3);
    CAPTURE(kind);
    if (kind == 0) return [](BareClient&) { return true; };
    if (kind == 1) return [&](BareClient& c) { return c.Send(small) && c.ReadUntil("!"); };
    if (kind == 2) return [&](BareClient& c) { return c.Send(large) && c.ReadUntil("x!"); };
    return [&](BareClient& c) { return c.Send(refused) && c.Send(small) && c.ReadUntil("xx!"); };
  }();
  {  // what the first connections leave behind for good
    BareClient first(server.port()), second(server.port());
    REQUIRE((exchange(first) && exchange(second)));
  }
  Settle(server);
  const size_t before = HeapBytes();
  std::vector<std::unique_ptr<BareClient>> clients;
  for (int i = 0; i < kNumConnections; ++i) {
    clients.push_back(std::make_unique<BareClient>(server.port(), 1 << 16));
    REQUIRE(exchange(*clients.back()));
  }
  Settle(server);
  const size_t after = HeapBytes();
  CAPTURE(before, after);
  CHECK(after < before + kNumConnections * kMaxIdleBytes);
}

}  // namespace
}  // namespace tandem
