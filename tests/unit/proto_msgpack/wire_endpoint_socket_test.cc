// What a wire thread sleeps on: sockets of ZeroMQ signal a descriptor once, so a wait that slept on
// a signal that was taken in by another call would never end.

#include "proto_msgpack/wire_endpoint_socket.h"

#include <string>
#include <thread>

#include "tests/support/dice.h"
#include "tests/support/environment.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

constexpr int kLongMs = 60'000;  // what never ends ends here

struct Ends {
  explicit Ends(const std::string& address) {
    bound.Open(context, zmq::socket_type::pair);
    REQUIRE(bound.Bind(address).ok());
    connected.Open(context, zmq::socket_type::pair);
    REQUIRE(connected.Connect(address).ok());
  }
  zmq::context_t context = MakeContext();  // outlives the sockets
  Socket bound, connected;
};

bool SendText(Socket* socket, std::string_view text) {
  const std::string_view frames[] = {text};
  return socket->Send(frames);
}

TEST_CASE("poll set: a socket that was found empty has no input until the next message") {
  Ends ends("inproc://empty");
  PollSet poll;
  poll.Add(ends.bound);
  ReceivedMessage message;
  CHECK(ends.bound.may_have_input());  // nobody has looked
  CHECK_FALSE(poll.Wait(0));
  CHECK_FALSE(ends.bound.may_have_input());
  REQUIRE(SendText(&ends.connected, "a"));
  REQUIRE(poll.Wait(kLongMs));
  CHECK(ends.bound.may_have_input());
  CHECK(poll.Wait(0));  // it is still there
  CHECK(ends.bound.Receive(&message));
  CHECK(ends.bound.may_have_input());
  CHECK_FALSE(ends.bound.Receive(&message));
  CHECK_FALSE(ends.bound.may_have_input());
  CHECK_FALSE(poll.Wait(0));
  ends.bound.Close();
  CHECK_FALSE(ends.bound.may_have_input());
}

TEST_CASE("poll set: a wake-up ends one wait") {
  const WakeUp wake_up;
  PollSet poll;
  poll.Reset(wake_up);
  CHECK_FALSE(poll.Wait(0));
  wake_up.Signal();
  wake_up.Signal();
  CHECK(poll.Wait(kLongMs));
  CHECK_FALSE(poll.Wait(0));
}

TEST_CASE("poll set: connections end a wait as messages do") {
  zmq::context_t context = MakeContext();
  Socket bound, connected;
  bound.Open(context, zmq::socket_type::pull);
  bound.Monitor(context);
  REQUIRE(bound.Bind("tcp://127.0.0.1:0").ok());
  PollSet poll;
  poll.Add(bound);
  CHECK_FALSE(poll.Wait(0));
  CHECK_FALSE(bound.may_have_events());
  connected.Open(context, zmq::socket_type::push);
  REQUIRE(connected.Connect(bound.bound_address()).ok());
  REQUIRE(poll.Wait(kLongMs));
  ConnectionEvent event;
  REQUIRE(bound.NextEvent(&event));
  CHECK(event.opened);
}

// ZeroMQ takes signals in with a send when it has not looked for them for 3 million ticks.
TEST_CASE("poll set: a message whose signal a send has taken in ends a wait") {
  constexpr uint64_t kTicks = 20'000'000;
  Ends ends("inproc://taken");
  PollSet poll;
  poll.Add(ends.bound);
  ReceivedMessage message;
  CHECK_FALSE(poll.Wait(0));
  REQUIRE(SendText(&ends.connected, "a"));
  for (const uint64_t begin = __builtin_ia32_rdtsc(); __builtin_ia32_rdtsc() - begin < kTicks;) {
  }
  REQUIRE(SendText(&ends.bound, "between"));
  REQUIRE(poll.Wait(kLongMs));
  CHECK(ends.bound.Receive(&message));
}

// One thread sends numbers; the other takes up to three at a time and sends in
// between, which takes signals in. Its waits end for each.
TEST_CASE("poll set: no message is slept over, whatever is sent in between") {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 20);
  CAPTURE(seed);
  const auto num_messages = static_cast<int>(FromEnvironment("TANDEM_CASES", 1'000));
  Ends ends("inproc://runs");
  std::thread peer([&, seed] {
    Dice dice(seed);
    for (int i = 0; i < num_messages; ++i) {
      if (dice.Chance(4)) std::this_thread::yield();
      SendText(&ends.connected, std::to_string(i));
    }
  });
  Dice dice(seed + 1);
  PollSet poll;
  poll.Add(ends.bound);
  ReceivedMessage message;
  int next = 0;
  bool in_order = true, in_time = true;
  while (next < num_messages && in_order && in_time) {
    in_time = poll.Wait(kLongMs);
    if (dice.Chance(3)) SendText(&ends.bound, "between");
    for (int left = dice.Roll(0, 3); left != 0 && ends.bound.Receive(&message); --left) {
      in_order = in_order && message.frames().front() == std::to_string(next++);
    }
    if (dice.Chance(3)) SendText(&ends.bound, "between");
  }
  peer.join();
  CHECK(in_time);
  CHECK(in_order);
  CHECK(next == num_messages);
}

}  // namespace
}  // namespace tandem::wire
