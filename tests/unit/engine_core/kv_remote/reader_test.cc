// What a reader does with holders that behave, and with those that do not.

#include "engine_core/kv_remote/reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/packets.h"
#include "tests/support/dice.h"
#include "tests/support/environment.h"
#include "tests/support/files/temp_folder.h"
#include "tests/support/kv_remote/remote_blocks.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Contains;

struct Reader {
  explicit Reader(KvReaderOptions options = {})
      : cache(MakeSmallKvCache(20)), parts(BlockParts::Of({{.cache = cache.get()}}).value()) {
    auto started = KvReader::Start(parts, RemoteShape(), options,
                                   [this](KvReadEnd end) { ends.Push(std::move(end)); });
    REQUIRE(started.ok());
    reader = *std::move(started);
  }

  std::unique_ptr<KvCache> cache;
  BlockParts parts;
  Mailbox<KvReadEnd> ends;
  std::unique_ptr<KvReader> reader;
};

// A holder of which the test writes every byte.
struct RawHolder {
  RawHolder() : address{.path = folder.PathOf("kv")}, listener(ListenAt(&address).value()) {
    for (int i = 1; i < 20; ++i) FillRemoteBlock(parts, BlockId{i}, 0);
  }
  // Welcomes the next reader.
  RawSocket Welcome(uint32_t lease_ms = 60000) {
    RawSocket socket = AcceptRaw(listener.get());
    CHECK(socket.ReceiveFrame().head.kind == KvFrame::kHello);
    REQUIRE(socket.Send(PackKvWelcome({.lease_ms = lease_ms})));
    return socket;
  }
  // The next order, past holds and releases.
  static RawSocket::Frame NextOrder(RawSocket* socket) {
    while (true) {
      RawSocket::Frame frame = socket->ReceiveFrame();
      if (frame.head.kind == KvFrame::kRead) return frame;
    }
  }
  // A whole frame with block i of RemoteLease.
  std::string Block(uint64_t number, int i, int hash = 0) const {
    std::string frame = PackKvBlockHead(number,
                                        {.ordinal = static_cast<uint32_t>(i - 1),
                                         .hash = RemoteHash(hash == 0 ? i : hash),
                                         .checksum = parts.Checksum(BlockId{i})},
                                        kSmallKvBlockBytes);
    std::vector<iovec> pieces;
    parts.AppendTo(&pieces, BlockId{i});
    for (const iovec& piece : pieces) {
      frame.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
    }
    return frame;
  }

  TempFolder folder;
  KvAddress address;
  UniqueFd listener;
  std::unique_ptr<KvCache> cache = MakeSmallKvCache(20);
  BlockParts parts = BlockParts::Of({{.cache = cache.get()}}).value();
};

TEST_CASE("kv reader: blocks arrive in the cache, and their lease is released") {
  enum class Way { kUnix, kTcp, kMapped };
  const Way way = GENERATE(Way::kUnix, Way::kTcp, Way::kMapped);
  INFO("way " << static_cast<int>(way));
  const TempFolder folder;
  const auto cache = MakeSmallKvCache(20);
  const BlockParts parts = BlockParts::Of({{.cache = cache.get()}}).value();
  UniqueFd memory;
  if (way == Way::kMapped) memory = ShareMemory(parts.memory(), parts.memory_bytes()).value();
  for (int i = 1; i < 20; ++i) FillRemoteBlock(parts, BlockId{i}, 3);
  Mailbox<RequestId> released;
  const KvAddress address =
      way == Way::kTcp ? KvAddress{.host = "127.0.0.1"} : KvAddress{.path = folder.PathOf("kv")};
  const auto server =
      KvServer::Start({.address = address, .max_leased_blocks = 100}, parts, RemoteShape(),
                      std::move(memory), [&](RequestId id) { released.Push(std::move(id)); });
  REQUIRE(server.ok());
  Reader reader;
  for (uint64_t round = 1; round <= 3; ++round) {
    (*server)->Lease(RemoteLease(round, "a", 10));
    reader.reader->Hold((*server)->address(), "b", RemoteTicket(round));
    reader.reader->Read((*server)->address(), RemoteJob("b", RemoteTicket(round), 10));
    const KvReadEnd end = NextOf(&reader.ends);
    INFO(end.status.ToString());
    CHECK(end.status.ok());
    CHECK(end.id == "b");
    CHECK(end.failed_blocks.empty());
    CHECK(NextOf(&released) == "a");
    for (int i = 1; i <= 10; ++i) {
      CHECK(parts.Checksum(BlockId{i}) == reader.parts.Checksum(BlockId{i + 1}));
      FillRemoteBlock(reader.parts, BlockId{i + 1}, 99);
    }
  }
}

TEST_CASE("kv reader: the last of several requests ends the lease that they share") {
  const TempFolder folder;
  const auto cache = MakeSmallKvCache(20);
  const BlockParts parts = BlockParts::Of({{.cache = cache.get()}}).value();
  UniqueFd memory;
  if (GENERATE(false, true)) {
    memory = ShareMemory(parts.memory(), parts.memory_bytes()).value();
  }
  Mailbox<RequestId> released;
  const auto server = KvServer::Start(
      {.address = KvAddress{.path = folder.PathOf("kv")}, .max_leased_blocks = 100}, parts,
      RemoteShape(), std::move(memory), [&](RequestId id) { released.Push(std::move(id)); });
  REQUIRE(server.ok());
  (*server)->Lease(RemoteLease(1, "a", 5));
  Reader reader;
  for (const char* id : {"b", "c", "d"}) {
    reader.reader->Hold((*server)->address(), id, RemoteTicket(1));
  }
  for (const char* id : {"b", "c"}) {
    reader.reader->Read((*server)->address(), RemoteJob(id, RemoteTicket(1), 5));
    const KvReadEnd end = NextOf(&reader.ends);
    INFO(end.status.ToString());
    CHECK(end.status.ok());
  }
  reader.reader->Release((*server)->address(), "d");
  CHECK(NextOf(&released) == "a");
}

TEST_CASE("kv reader: a lease is held while its request waits, and released unread") {
  RawHolder holder;
  Reader reader;
  reader.reader->Hold(holder.address, "b", RemoteTicket(4));
  RawSocket socket = holder.Welcome(/*lease_ms=*/60);
  for (int i = 0; i < 3; ++i) {
    const RawSocket::Frame frame = socket.ReceiveFrame();
    CHECK(frame.head.kind == KvFrame::kHold);
    CHECK(ReadKvTicket(frame.payload)->ToHex() == RemoteTicket(4).ToHex());
  }
  reader.reader->Release(holder.address, "b");
  RawSocket::Frame frame = socket.ReceiveFrame();
  while (frame.head.kind == KvFrame::kHold) frame = socket.ReceiveFrame();
  CHECK(frame.head.kind == KvFrame::kRelease);
}

TEST_CASE("kv reader: a holder that dies in the middle fails what has not come") {
  RawHolder holder;
  Reader reader;
  reader.reader->Read(holder.address, RemoteJob("b", RemoteTicket(1), 4));
  {
    RawSocket socket = holder.Welcome();
    const uint64_t number = RawHolder::NextOrder(&socket).head.number;
    REQUIRE(socket.Send(holder.Block(number, 1) + holder.Block(number, 2).substr(0, 100)));
  }
  const KvReadEnd end = NextOf(&reader.ends);
  CHECK_FALSE(end.status.ok());
  CHECK(end.has_any);
  CHECK(end.failed_blocks == std::vector{BlockId{3}, BlockId{4}, BlockId{5}});
  // What had not been ordered there is tried again at the same place.
  reader.reader->Read(holder.address, RemoteJob("c", RemoteTicket(1), 1));
  RawSocket socket = holder.Welcome();
  REQUIRE(socket.Send(holder.Block(RawHolder::NextOrder(&socket).head.number, 1)));
  CHECK(NextOf(&reader.ends).status.ok());
}

TEST_CASE("kv reader: what was not ordered is no block") {
  RawHolder holder;
  Reader reader;
  constexpr size_t kNumCases = 10;
  for (size_t i = 0; i < kNumCases; ++i) {
    reader.reader->Read(holder.address, RemoteJob("b", RemoteTicket(1), 4));
    RawSocket socket = holder.Welcome();
    const uint64_t number = RawHolder::NextOrder(&socket).head.number;
    std::string damaged = holder.Block(number, 1);
    damaged.back() ^= 1;
    const std::vector<std::pair<std::string, std::string>> cases = {
        {holder.Block(number, 1, /*hash=*/9), "another block"},
        {holder.Block(number, 2), "another block"},
        {holder.Block(number + 1, 1), "was not ordered"},
        {damaged, "damaged"},
        {PackKvBlockHead(number, {}, 10), "another size"},
        {PackKvWelcome({.lease_ms = 5}), "second welcome"},
        {PackKvTicket(KvFrame::kHold, RemoteTicket(1)), "only a reader sends"},
        {PackKvRefusal(number + 5, "no"), "was not ordered"},
        {PackKvRefusal(number, "no such thing"), "no such thing"},
        {std::string(40, 'x'), "no frame"}};
    REQUIRE(cases.size() == kNumCases);
    REQUIRE(socket.Send(cases[i].first));
    const KvReadEnd end = NextOf(&reader.ends);
    CHECK_THAT(end.status.message(), Contains(cases[i].second));
    CHECK_FALSE(end.has_any);
    CHECK(end.failed_blocks.size() == 4);
    // A refusal leaves the connection open.
    if (cases[i].second == "no such thing") shutdown(socket.fd(), SHUT_RDWR);
  }
}

// A holder on the same host: its cache comes with the welcome.
struct MappedHolder : RawHolder {
  MappedHolder() : file(ShareMemory(parts.memory(), parts.memory_bytes()).value()) {
    for (int i = 1; i < 20; ++i) FillRemoteBlock(parts, BlockId{i}, 0);
  }
  RawSocket WelcomeWith(int passed, uint64_t num_blocks = 20) {
    RawSocket socket = AcceptRaw(listener.get());
    CHECK(socket.ReceiveFrame().head.kind == KvFrame::kHello);
    const std::string welcome = PackKvWelcome({.lease_ms = 60000, .num_blocks = num_blocks});
    REQUIRE(SendPacket(socket.fd(), welcome, {&passed, 1}).ok());
    return socket;
  }
  static RawSocket::Frame Next(RawSocket* socket, KvFrame kind) {
    while (true) {
      RawSocket::Frame frame = socket->ReceiveFrame();
      if (frame.head.kind == kind) return frame;
    }
  }
  UniqueFd file;
};

TEST_CASE("kv reader: what it copies counts when the holder confirms the lease") {
  MappedHolder holder;
  Reader reader;
  reader.reader->Read(holder.address, RemoteJob("b", RemoteTicket(1), 3));
  reader.reader->Read(holder.address, RemoteJob("c", RemoteTicket(2), 2));
  RawSocket socket = holder.WelcomeWith(holder.file.get());
  const uint64_t first = MappedHolder::Next(&socket, KvFrame::kFind).head.number;
  const uint64_t second = MappedHolder::Next(&socket, KvFrame::kFind).head.number;
  const std::vector<BlockId> blocks = {BlockId{9}, BlockId{4}, BlockId{2}};
  REQUIRE(socket.Send(PackKvPlaces(first, blocks)));
  CHECK(MappedHolder::Next(&socket, KvFrame::kConfirm).head.number == first);
  REQUIRE(socket.Send(PackKvPlaces(second, {blocks.data(), 2})));
  CHECK(MappedHolder::Next(&socket, KvFrame::kConfirm).head.number == second);
  REQUIRE(socket.Send(PackKvRefusal(first, "its time was over")));
  const KvReadEnd lost = NextOf(&reader.ends);
  CHECK(lost.id == "b");
  CHECK_FALSE(lost.status.ok());
  CHECK_FALSE(lost.has_any);
  CHECK(lost.failed_blocks.size() == 3);
  REQUIRE(socket.Send(PackKvHeld(second)));
  const KvReadEnd copied = NextOf(&reader.ends);
  CHECK(copied.id == "c");
  CHECK(copied.status.ok());
  CHECK(reader.parts.Checksum(BlockId{2}) == holder.parts.Checksum(BlockId{9}));
  CHECK(reader.parts.Checksum(BlockId{3}) == holder.parts.Checksum(BlockId{4}));
}

TEST_CASE("kv reader: a file that could be cut, or of another size, is not mapped") {
  MappedHolder holder;
  Reader reader;
  const UniqueFd unsealed(memfd_create("x", MFD_CLOEXEC));
  REQUIRE(ftruncate(unsealed.get(), holder.parts.memory_bytes()) == 0);
  const UniqueFd no_memory(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<std::pair<int, uint64_t>> cases = {{unsealed.get(), 20},
                                                       {no_memory.get(), 20},
                                                       {holder.file.get(), 21},
                                                       {holder.file.get(), UINT64_MAX / 2}};
  for (const auto& [file, num_blocks] : cases) {
    reader.reader->Read(holder.address, RemoteJob("b", RemoteTicket(1), 3));
    RawSocket socket = holder.WelcomeWith(file, num_blocks);
    const KvReadEnd end = NextOf(&reader.ends);
    CHECK(end.status.code() == StatusCode::kDataLoss);
    CHECK_FALSE(end.has_any);
  }
  // And a reader cannot write to it.
  CHECK(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, holder.file.get(), 0) ==
        MAP_FAILED);
}

TEST_CASE("kv reader: places outside of the cache, or of another number, are refused") {
  MappedHolder holder;
  Reader reader;
  const std::vector<BlockId> outside = {BlockId{1}, BlockId{20}},
                             negative = {BlockId{1}, BlockId{-1}}, good = {BlockId{1}, BlockId{2}},
                             more = {BlockId{1}, BlockId{2}, BlockId{3}};
  for (size_t i = 0; i < 6; ++i) {
    reader.reader->Read(holder.address, RemoteJob("b", RemoteTicket(1), 2));
    RawSocket socket = holder.WelcomeWith(holder.file.get());
    const uint64_t number = MappedHolder::Next(&socket, KvFrame::kFind).head.number;
    const std::vector<std::string> replies = {
        PackKvPlaces(number, outside),
        PackKvPlaces(number, negative),
        PackKvPlaces(number, more),
        PackKvPlaces(number + 1, good),
        PackKvHeld(number),
        PackKvPlaces(number, good) + PackKvPlaces(number, good)};
    REQUIRE(socket.Send(replies[i]));
    const KvReadEnd end = NextOf(&reader.ends);
    INFO(i << " " << end.status.ToString());
    CHECK(end.status.code() == StatusCode::kDataLoss);
    CHECK_FALSE(end.has_any);
  }
}

TEST_CASE("kv reader: nobody there, a refusal, and silence are failures with their reason") {
  RawHolder holder;
  Reader reader({.connect_s = 0.1}), impatient({.stall_s = 0.1});
  const TempFolder folder;
  reader.reader->Read({.path = folder.PathOf("none")}, RemoteJob("a", RemoteTicket(1), 2));
  CHECK_THAT(NextOf(&reader.ends).status.message(), Contains("none"));
  {
    impatient.reader->Read(holder.address, RemoteJob("b", RemoteTicket(1), 2));
    RawSocket socket = AcceptRaw(holder.listener.get());
    REQUIRE(socket.Send(PackKvRefusal(0, "model: 'm' there and 'n' here")));
    CHECK_THAT(NextOf(&impatient.ends).status.message(), Contains("model: 'm' there"));
  }
  {
    reader.reader->Read(holder.address, RemoteJob("c", RemoteTicket(1), 2));
    RawSocket socket = AcceptRaw(holder.listener.get());
    CHECK_THAT(NextOf(&reader.ends).status.message(), Contains("does not respond"));
  }
  impatient.reader->Read(holder.address, RemoteJob("d", RemoteTicket(1), 2));
  RawSocket socket = holder.Welcome();
  CHECK_THAT(NextOf(&impatient.ends).status.message(), Contains("do not come"));
}

TEST_CASE("kv reader: a holder that is silent holds up no other") {
  RawHolder silent, good;
  Reader reader;
  reader.reader->Read(silent.address, RemoteJob("a", RemoteTicket(1), 2));
  RawSocket nothing = silent.Welcome();
  reader.reader->Read(good.address, RemoteJob("b", RemoteTicket(1), 1));
  RawSocket socket = good.Welcome();
  REQUIRE(socket.Send(good.Block(RawHolder::NextOrder(&socket).head.number, 1)));
  CHECK(NextOf(&reader.ends).id == "b");
}

TEST_CASE("kv reader: many reads at once all end") {
  RawHolder holder;
  Reader reader;
  for (int i = 0; i < 20; ++i) {
    reader.reader->Read(holder.address, RemoteJob(std::to_string(i), RemoteTicket(1), 1));
  }
  RawSocket socket = holder.Welcome();
  for (int i = 0; i < 20; ++i) {
    REQUIRE(socket.Send(holder.Block(RawHolder::NextOrder(&socket).head.number, 1)));
    CHECK(NextOf(&reader.ends).id == std::to_string(i));
  }
}

TEST_CASE("kv reader: random bytes of a holder become no block") {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 20261124);
  INFO("TANDEM_SEED=" << seed);
  Dice dice(seed);
  RawHolder holder;
  Reader reader;
  const auto num_cases = static_cast<int>(FromEnvironment("TANDEM_CASES", 100));
  for (int i = 0; i < num_cases; ++i) {
    reader.reader->Read(holder.address, RemoteJob("b", RemoteTicket(1), 2));
    {
      RawSocket socket = holder.Welcome();
      const uint64_t number = RawHolder::NextOrder(&socket).head.number;
      std::string bytes = holder.Block(number, 1) + holder.Block(number, 2);
      const auto at = static_cast<size_t>(dice.Roll(0, static_cast<int>(bytes.size()) - 1));
      bytes[at] = static_cast<char>(bytes[at] ^ dice.Roll(1, 255));
      bytes.resize(
          static_cast<size_t>(dice.Roll(static_cast<int>(at) + 1, static_cast<int>(bytes.size()))));
      socket.Send(bytes);
    }
    const KvReadEnd end = NextOf(&reader.ends);
    const bool came = end.status.ok();
    for (int block = 1; came && block <= 2; ++block) {
      REQUIRE(holder.parts.Checksum(BlockId{block}) == reader.parts.Checksum(BlockId{block + 1}));
    }
    REQUIRE(end.failed_blocks.empty() == came);
  }
}

}  // namespace
}  // namespace tandem
