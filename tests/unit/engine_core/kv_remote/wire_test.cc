#include "engine_core/kv_remote/wire.h"

#include "engine_core/kv_remote/lease_table.h"
#include "tests/support/kv_remote/remote_blocks.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Contains;

std::string PayloadOf(const std::string& frame) {
  const auto head = ReadKvHead(frame.substr(0, kKvHeadBytes));
  REQUIRE(head.ok());
  return frame.substr(kKvHeadBytes);
}

TEST_CASE("kv wire: frames come back as they were packed") {
  const std::string hello = PackKvHello(RemoteShape());
  CHECK(ReadKvHead(hello.substr(0, 16))->num_bytes == hello.size() - 16);
  const auto shape = ReadKvHello(PayloadOf(hello));
  REQUIRE(shape.ok());
  CHECK(KvDifference(RemoteShape(), *shape).empty());

  const std::string hold = PackKvTicket(KvFrame::kHold, RemoteTicket(77, 5));
  CHECK(ReadKvHead(hold.substr(0, 16))->kind == KvFrame::kHold);
  CHECK(ReadKvTicket(PayloadOf(hold))->ToHex() == RemoteTicket(77, 5).ToHex());

  const std::string read = PackKvRead(9, {RemoteTicket(1), 3, {RemoteHash(4), RemoteHash(5)}});
  CHECK(ReadKvHead(read.substr(0, 16))->number == 9);
  CHECK(read.size() == 16 + KvReadBytes(2));
  const auto order = ReadKvRead(PayloadOf(read));
  REQUIRE(order.ok());
  CHECK(order->first == 3);
  CHECK(order->hashes == std::vector{RemoteHash(4), RemoteHash(5)});

  const std::string block = PackKvBlockHead(8, {2, RemoteHash(1), 0x9abcdef0}, 100);
  CHECK(ReadKvHead(block.substr(0, 16))->num_bytes == kKvBlockHeadBytes + 100);
  const auto head = ReadKvBlockHead(PayloadOf(block));
  REQUIRE(head.ok());
  CHECK(head->ordinal == 2);
  CHECK(head->checksum == 0x9abcdef0);
  const auto welcome = ReadKvWelcome(PayloadOf(PackKvWelcome({30000, 77})));
  CHECK(welcome->lease_ms == 30000);
  CHECK(welcome->num_blocks == 77);
  const std::vector<BlockId> blocks = {BlockId{5}, BlockId{70000}};
  CHECK(*ReadKvPlaces(PayloadOf(PackKvPlaces(3, blocks))) == std::vector<uint32_t>{5, 70000});
  CHECK(ReadKvHead(PackKvHeld(4))->number == 4);
  CHECK(ReadKvRefusal(PayloadOf(PackKvRefusal(1, "no\x1b[31m"))) == "no?[31m");
}

TEST_CASE("kv wire: a payload that is a byte too short or too long is none") {
  for (const int change : {-1, 1}) {
    const auto cut = [&](const std::string& frame) {
      std::string payload = PayloadOf(frame);
      payload.resize(payload.size() + static_cast<size_t>(change));
      return payload;
    };
    CHECK_FALSE(ReadKvHello(cut(PackKvHello(RemoteShape()))).ok());
    CHECK_FALSE(ReadKvTicket(cut(PackKvTicket(KvFrame::kHold, RemoteTicket(1)))).ok());
    CHECK_FALSE(ReadKvRead(cut(PackKvRead(1, {RemoteTicket(1), 0, {RemoteHash(1)}}))).ok());
    CHECK_FALSE(ReadKvBlockHead(cut(PackKvBlockHead(1, {}, 0))).ok());
    CHECK_FALSE(ReadKvWelcome(cut(PackKvWelcome({}))).ok());
    CHECK_FALSE(ReadKvPlaces(cut(PackKvPlaces(1, std::vector<BlockId>{BlockId{1}}))).ok());
  }
  CHECK_FALSE(ReadKvRead(PayloadOf(PackKvRead(1, {RemoteTicket(1), 0, {}}))).ok());
  std::string head = PackKvTicket(KvFrame::kHold, RemoteTicket(1)).substr(0, 16);
  CHECK(ReadKvHead(head).ok());
  head[4] = 9;  // no kind
  CHECK_FALSE(ReadKvHead(head).ok());
}

TEST_CASE("kv wire: a hello of another version says so, one of another program is none") {
  std::string payload = PayloadOf(PackKvHello(RemoteShape()));
  payload[4] = 2;
  CHECK_THAT(ReadKvHello(payload).status().message(), Contains("version"));
  payload[0] = 'x';
  CHECK_THAT(ReadKvHello(payload).status().message(), Contains("no TandemConnector"));
}

TEST_CASE("kv wire: what differs is named") {
  const auto differs = [](auto change) {
    KvShape other = RemoteShape();
    change(&other);
    return KvDifference(RemoteShape(), other);
  };
  CHECK_THAT(differs([](KvShape* s) { s->model = "n"; }), Contains("model"));
  CHECK_THAT(differs([](KvShape* s) { s->layout = "n"; }), Contains("layout"));
  CHECK_THAT(differs([](KvShape* s) { s->hashes = "n"; }), Contains("hashes"));
  CHECK(differs([](KvShape* s) { s->block_size = 32; }) == "--block-size: 4 there and 32 here");
  CHECK_THAT(differs([](KvShape* s) { s->num_parts = 1; }), Contains("parts"));
  CHECK_THAT(differs([](KvShape* s) { s->block_bytes = 1; }), Contains("bytes"));
}

TEST_CASE("kv wire: a ticket's text is 48 hex digits and nothing else") {
  const std::string hex = RemoteTicket(0x0102, 0xab).ToHex();
  CHECK(hex.size() == 48);
  CHECK(KvTicket::FromHex(hex)->lease == 0x0102);
  CHECK(KvTicket::FromHex(hex)->secret == RemoteTicket(0, 0xab).secret);
  CHECK_FALSE(KvTicket::FromHex(hex.substr(1)));
  CHECK_FALSE(KvTicket::FromHex(hex + "00"));
  CHECK_FALSE(KvTicket::FromHex("x" + hex.substr(1)));
}

TEST_CASE("kv leases: one ends when its time is over, unless its reader lives") {
  KvLeaseTable table(10, 100);
  table.Add(RemoteLease(1, "a", 2), 0);
  table.Add(RemoteLease(2, "b", 2), 1);
  CHECK(table.next_end() == 10);
  table.Renew(1, 5);
  CHECK(table.Expire(10.5).empty());
  CHECK(table.Expire(11) == std::vector<RequestId>{"b"});
  CHECK(table.next_end() == 15);
  CHECK(table.Expire(15) == std::vector<RequestId>{"a"});
  CHECK(table.size() == 0);
}

TEST_CASE("kv leases: the oldest make room, one alone may be larger") {
  KvLeaseTable table(10, 6);
  table.Add(RemoteLease(1, "a", 3), 0);
  table.Add(RemoteLease(2, "b", 3), 0);
  CHECK(table.MakeRoom().empty());
  table.Add(RemoteLease(3, "c", 2), 0);
  CHECK(table.MakeRoom() == std::vector<RequestId>{"a"});
  table.Add(RemoteLease(4, "d", 9), 0);
  CHECK(table.MakeRoom() == std::vector<RequestId>{"b", "c"});
  CHECK(table.size() == 1);
  table.Add(RemoteLease(5, "e", 1), 0);
  CHECK(table.MakeRoom() == std::vector<RequestId>{"d"});
}

TEST_CASE("kv leases: one that is given up makes room") {
  KvLeaseTable table(10, 6);
  table.Add(RemoteLease(1, "a", 3), 0);
  table.Add(RemoteLease(2, "b", 3), 0);
  CHECK(table.GiveUp("b"));
  CHECK_FALSE(table.GiveUp("b"));
  table.Add(RemoteLease(3, "c", 3), 0);
  CHECK_FALSE(table.lacks_room());
  CHECK(table.Find(RemoteTicket(1)) != nullptr);
}

TEST_CASE("kv leases: without its secret nobody finds or ends one") {
  KvLeaseTable table(10, 6);
  table.Add(RemoteLease(7, "a", 3), 0);
  for (size_t byte = 0; byte < 16; ++byte) {
    KvTicket wrong = RemoteTicket(7);
    wrong.secret[byte] ^= 0x80;
    CHECK(table.Find(wrong) == nullptr);
    CHECK_FALSE(table.Release(wrong));
  }
  CHECK(table.Find(RemoteTicket(8)) == nullptr);
  REQUIRE(table.Find(RemoteTicket(7)) != nullptr);
  CHECK(table.Release(RemoteTicket(7)) == "a");
  CHECK_FALSE(table.Release(RemoteTicket(7)));
}

TEST_CASE("kv addresses: what is one, and what is none") {
  CHECK(KvAddress::Parse("unix:/run/x")->ToString() == "unix:/run/x");
  CHECK(KvAddress::Parse("tcp://127.0.0.1:0")->is_local());
  CHECK(KvAddress::Parse("tcp://[::1]:5")->ToString() == "tcp://[::1]:5");
  CHECK_FALSE(KvAddress::Parse("tcp://10.0.0.1:5")->is_local());
  for (const char* text :
       {"", "unix:", "unix:x", "/x", "tcp://", "tcp://a", "tcp://a:b", "tcp://a:-1", "tcp://:5",
        "tcp://0.0.0.0:5", "tcp://*:5", "tcp://a:65536"}) {
    INFO(text);
    CHECK_FALSE(KvAddress::Parse(text).ok());
  }
  CHECK_FALSE(KvAddress::Parse("unix:/" + std::string(200, 'x')).ok());
  CHECK(KvAddress::OfRemote("127.0.0.1", 5)->port == 5);
  CHECK(KvAddress::OfRemote("localhost", 5).ok());
  for (const char* host : {"", "example.com", "127.0.0.1 ", "unix:relative"}) {
    INFO(host);
    CHECK_FALSE(KvAddress::OfRemote(host, 5).ok());
  }
  CHECK_FALSE(KvAddress::OfRemote("127.0.0.1", 0).ok());
  CHECK_FALSE(KvAddress::OfRemote("127.0.0.1", 70000).ok());
}

}  // namespace
}  // namespace tandem
