// What a holder does with readers that behave, and with those that do not.

#include "engine_core/kv_remote/server.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/dice.h"
#include "tests/support/environment.h"
#include "tests/support/files/temp_folder.h"
#include "tests/support/kv_remote/remote_blocks.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Contains;

struct Holder {
  explicit Holder(double lease_s = 60)
      : cache(MakeSmallKvCache(20)), parts(BlockParts::Of({{.cache = cache.get()}}).value()) {
    for (int i = 1; i < 20; ++i) FillRemoteBlock(parts, BlockId{i}, 0);
    const KvServerOptions options = {
        .address = {.path = folder.PathOf("kv")}, .lease_s = lease_s, .max_leased_blocks = 10};
    auto started = KvServer::Start(options, parts, RemoteShape(), {},
                                   [this](RequestId id) { released.Push(std::move(id)); });
    REQUIRE(started.ok());
    server = *std::move(started);
  }
  RawSocket Connect() { return ConnectRaw(server->address()); }
  // Says hello and is welcome.
  RawSocket Greet() {
    RawSocket socket = Connect();
    REQUIRE(socket.Send(PackKvHello(RemoteShape())));
    CHECK(socket.ReceiveFrame().head.kind == KvFrame::kWelcome);
    return socket;
  }

  TempFolder folder;
  std::unique_ptr<KvCache> cache;
  BlockParts parts;
  Mailbox<RequestId> released;
  std::unique_ptr<KvServer> server;
};

std::string Read(uint64_t number, const KvTicket& ticket, uint32_t first, std::vector<int> hashes) {
  KvReadOrder order = {ticket, first};
  for (const int hash : hashes) order.hashes.push_back(RemoteHash(hash));
  return PackKvRead(number, order);
}

std::string RefusalOf(RawSocket* socket, uint64_t number) {
  const RawSocket::Frame frame = socket->ReceiveFrame();
  CHECK(frame.head.kind == KvFrame::kRefusal);
  CHECK(frame.head.number == number);
  return frame.payload;
}

TEST_CASE("kv holder: ordered blocks come with their hash, checksum and bytes") {
  Holder holder;
  holder.server->Lease(RemoteLease(1, "a", 5));
  RawSocket reader = holder.Greet();
  REQUIRE(reader.Send(Read(7, RemoteTicket(1), 2, {3, 4})));
  for (int block = 3; block <= 4; ++block) {
    const RawSocket::Frame frame = reader.ReceiveFrame();
    REQUIRE(frame.head.kind == KvFrame::kBlock);
    CHECK(frame.head.number == 7);
    REQUIRE(frame.payload.size() == kKvBlockHeadBytes + kSmallKvBlockBytes);
    const auto head = ReadKvBlockHead(frame.payload.substr(0, kKvBlockHeadBytes));
    CHECK(head->ordinal == static_cast<uint32_t>(block - 1));
    CHECK(head->hash == RemoteHash(block));
    CHECK(head->checksum == holder.parts.Checksum(BlockId{block}));
    for (size_t i = 0; i < static_cast<size_t>(kSmallKvBlockBytes); ++i) {
      const auto expected =
          static_cast<char>(i / kSmallKvPartBytes + 7 * static_cast<size_t>(block));
      REQUIRE(frame.payload[kKvBlockHeadBytes + i] == expected);
    }
  }
  REQUIRE(reader.Send(PackKvTicket(KvFrame::kRelease, RemoteTicket(1))));
  CHECK(NextOf(&holder.released) == "a");
  REQUIRE(reader.Send(Read(8, RemoteTicket(1), 0, {1})));
  CHECK_THAT(RefusalOf(&reader, 8), Contains("no KV is held"));
}

TEST_CASE("kv holder: places and confirmations are for who has the ticket") {
  Holder holder;
  holder.server->Lease(RemoteLease(1, "a", 5));
  RawSocket reader = holder.Greet();
  const KvReadOrder order = {RemoteTicket(1), 1, {RemoteHash(2), RemoteHash(3)}};
  REQUIRE(reader.Send(PackKvRead(1, order, KvFrame::kFind)));
  const RawSocket::Frame places = reader.ReceiveFrame();
  CHECK(places.head.kind == KvFrame::kPlaces);
  CHECK(*ReadKvPlaces(places.payload) == std::vector<uint32_t>{2, 3});
  REQUIRE(reader.Send(PackKvTicket(KvFrame::kConfirm, RemoteTicket(1), 1)));
  CHECK(reader.ReceiveFrame().head.kind == KvFrame::kHeld);
  const KvReadOrder forged = {RemoteTicket(1, 2), 1, {RemoteHash(2)}};
  REQUIRE(reader.Send(PackKvRead(2, forged, KvFrame::kFind)));
  CHECK_THAT(RefusalOf(&reader, 2), Contains("no KV is held"));
  REQUIRE(reader.Send(PackKvTicket(KvFrame::kConfirm, RemoteTicket(1, 2), 3)));
  CHECK_THAT(RefusalOf(&reader, 3), Contains("no KV is held"));
  REQUIRE(reader.Send(PackKvTicket(KvFrame::kRelease, RemoteTicket(1))));
  REQUIRE(reader.Send(PackKvTicket(KvFrame::kConfirm, RemoteTicket(1), 4)));
  CHECK_THAT(RefusalOf(&reader, 4), Contains("no KV is held"));
}

// Replies that wait have a bounded memory.
TEST_CASE("kv holder: no more orders are taken of a reader that takes no replies") {
  Holder holder;
  RawSocket reader = holder.Greet();
  std::string orders;
  for (int i = 0; i < 1000; ++i) orders += Read(1, RemoteTicket(1), 0, {1});
  size_t num_sent = 0;
  bool is_taken = true;
  while (is_taken && num_sent < 64 << 20) {
    const ssize_t size =
        send(reader.fd(), orders.data(), orders.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size > 0) num_sent += static_cast<size_t>(size);
    pollfd waited = {reader.fd(), POLLOUT, 0};
    is_taken = poll(&waited, 1, 300) > 0;
  }
  CHECK_FALSE(is_taken);
}

TEST_CASE("kv holder: a wrong ticket, another prompt and too many blocks are refused") {
  Holder holder;
  holder.server->Lease(RemoteLease(1, "a", 5));
  RawSocket reader = holder.Greet();
  REQUIRE(reader.Send(Read(1, RemoteTicket(1, 2), 0, {1})));
  const std::string wrong_secret = RefusalOf(&reader, 1);
  REQUIRE(reader.Send(Read(2, RemoteTicket(2), 0, {1})));
  CHECK(RefusalOf(&reader, 2) == wrong_secret);  // who guesses learns nothing
  REQUIRE(reader.Send(Read(3, RemoteTicket(1), 0, {1, 9})));
  CHECK_THAT(RefusalOf(&reader, 3), Contains("other blocks"));
  REQUIRE(reader.Send(Read(4, RemoteTicket(1), 4, {5, 6})));
  CHECK_THAT(RefusalOf(&reader, 4), Contains("more blocks"));
  REQUIRE(reader.Send(Read(5, RemoteTicket(1), UINT32_MAX, {1})));
  CHECK_THAT(RefusalOf(&reader, 5), Contains("more blocks"));
  // Neither holds nor releases without the secret.
  REQUIRE(reader.Send(PackKvTicket(KvFrame::kRelease, RemoteTicket(1, 2))));
  REQUIRE(reader.Send(Read(6, RemoteTicket(1), 0, {1})));
  CHECK(reader.ReceiveFrame().head.kind == KvFrame::kBlock);
}

TEST_CASE("kv holder: a reader of another model is refused by name and reads nothing") {
  Holder holder;
  holder.server->Lease(RemoteLease(1, "a", 5));
  RawSocket reader = holder.Connect();
  KvShape other = RemoteShape();
  other.model = "n";
  // It does not wait for the reply.
  REQUIRE(reader.Send(PackKvHello(other) + Read(1, RemoteTicket(1), 0, {1})));
  CHECK_THAT(RefusalOf(&reader, 0), Contains("model"));
  CHECK(reader.is_closed_by_peer());
}

TEST_CASE("kv holder: what breaks the protocol ends the connection, and no lease") {
  Holder holder;
  holder.server->Lease(RemoteLease(1, "a", 5));
  std::string long_read = Read(1, RemoteTicket(1), 0, std::vector<int>(100, 1));
  std::string strange = PackKvWelcome({});
  const std::string hello = PackKvHello(RemoteShape());
  std::string other_head = hello;
  other_head[4] = 99;
  const std::vector<std::string> broken = {"GET / HTTP/1.1\r\n\r\n",
                                           Read(1, RemoteTicket(1), 0, {1}),
                                           hello + hello,
                                           hello + strange,
                                           hello + long_read,
                                           other_head};
  for (const std::string& bytes : broken) {
    RawSocket reader = holder.Connect();
    REQUIRE(reader.Send(bytes));
    std::string left;
    while (!(left = reader.Receive(64)).empty()) {
    }
  }
  RawSocket reader = holder.Greet();
  REQUIRE(reader.Send(Read(1, RemoteTicket(1), 0, {1})));
  CHECK(reader.ReceiveFrame().head.kind == KvFrame::kBlock);
}

TEST_CASE("kv holder: a lease ends by itself when its reader is gone in the middle") {
  Holder holder(0.2);
  holder.server->Lease(RemoteLease(1, "a", 5));
  {
    RawSocket reader = holder.Greet();
    REQUIRE(reader.Send(Read(1, RemoteTicket(1), 0, {1, 2, 3, 4, 5})));
    reader.Receive(100);
  }
  CHECK(NextOf(&holder.released) == "a");
}

TEST_CASE("kv holder: the oldest lease makes room, and is not read any more") {
  Holder holder;
  holder.server->Lease(RemoteLease(1, "a", 6));
  RawSocket reader = holder.Greet();
  holder.server->Lease(RemoteLease(2, "b", 6));
  CHECK(NextOf(&holder.released) == "a");
  REQUIRE(reader.Send(Read(1, RemoteTicket(1), 0, {1})));
  CHECK_THAT(RefusalOf(&reader, 1), Contains("no KV is held"));
  REQUIRE(reader.Send(Read(2, RemoteTicket(2), 0, {1})));
  CHECK(reader.ReceiveFrame().head.kind == KvFrame::kBlock);
}

// As when readers hurry and the holder is late: all of it is there at once.
TEST_CASE("kv holder: a lease that has been released needs no room") {
  Holder holder;
  RawSocket reader = holder.Greet();
  for (uint64_t i = 1; i < 300; ++i) {
    holder.server->Lease(RemoteLease(2 * i, "read", 6));
    REQUIRE(reader.Send(PackKvTicket(KvFrame::kRelease, RemoteTicket(2 * i))));
    holder.server->Lease(RemoteLease(2 * i + 1, "given up", 6));
    CHECK(NextOf(&holder.released) == "read");
    holder.server->GiveUp("given up");
    CHECK(NextOf(&holder.released) == "given up");
  }
}

TEST_CASE("kv holder: more orders than it takes at once are all done, in order") {
  Holder holder;
  holder.server->Lease(RemoteLease(1, "a", 6));
  RawSocket reader = holder.Greet();
  std::string orders;
  for (uint64_t i = 1; i <= 100; ++i) orders += Read(i, RemoteTicket(1), 1, {2, 3});
  REQUIRE(reader.Send(orders));
  for (uint64_t i = 1; i <= 200; ++i) {
    REQUIRE(reader.ReceiveFrame().head.number == (i + 1) / 2);
  }
}

TEST_CASE("kv holder: its socket is one user's, replaced when stale and gone with it") {
  const TempFolder folder;
  const auto cache = MakeSmallKvCache(4);
  const BlockParts parts = BlockParts::Of({{.cache = cache.get()}}).value();
  const KvServerOptions options = {.address = {.path = folder.PathOf("kv")}};
  const auto start = [&] {
    return KvServer::Start(options, parts, RemoteShape(), {}, [](RequestId) {});
  };
  folder.Write("kv", "a file");
  CHECK_THAT(start().status().message(), Contains("is no socket"));
  REQUIRE(unlink(folder.PathOf("kv").c_str()) == 0);
  {
    KvAddress stale = options.address;
    REQUIRE(ListenAt(&stale).ok());  // its process has ended
  }
  {
    const auto first = start();
    REQUIRE(first.ok());
    struct stat about {};
    REQUIRE(stat(folder.PathOf("kv").c_str(), &about) == 0);
    CHECK((about.st_mode & 0777) == 0600);
    CHECK_THAT(start().status().message(), Contains("another process"));
  }
  CHECK(access(folder.PathOf("kv").c_str(), F_OK) != 0);
}

// Any prefix of a good conversation, then anything: others are served as before.
TEST_CASE("kv holder: random bytes harm nobody") {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 20261124);
  INFO("TANDEM_SEED=" << seed);
  Dice dice(seed);
  Holder holder;
  holder.server->Lease(RemoteLease(1, "a", 5));
  const std::string good = PackKvHello(RemoteShape()) +
                           PackKvTicket(KvFrame::kHold, RemoteTicket(1)) +
                           Read(1, RemoteTicket(1), 0, {1, 2});
  const auto num_cases = static_cast<int>(FromEnvironment("TANDEM_CASES", 200));
  for (int i = 0; i < num_cases; ++i) {
    std::string bytes =
        good.substr(0, static_cast<size_t>(dice.Roll(0, static_cast<int>(good.size()))));
    for (int n = dice.Roll(0, 3); n > 0 && !bytes.empty(); --n) {
      bytes[static_cast<size_t>(dice.Roll(0, static_cast<int>(bytes.size()) - 1))] =
          static_cast<char>(dice.Roll(0, 255));
    }
    for (int n = dice.Roll(0, 40); n > 0; --n) bytes += static_cast<char>(dice.Roll(0, 255));
    RawSocket reader = holder.Connect();
    reader.Send(bytes);  // it may be closed before the end
    shutdown(reader.fd(), SHUT_WR);
    while (!reader.Receive(1000).empty()) {
    }
  }
  RawSocket reader = holder.Greet();
  REQUIRE(reader.Send(Read(1, RemoteTicket(1), 0, {1})));
  CHECK(reader.ReceiveFrame().head.kind == KvFrame::kBlock);
}

}  // namespace
}  // namespace tandem
