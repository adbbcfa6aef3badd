// Both sides of a hand-over over a real socket, in one process.

#include "frontend/hand_over/hand_over.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "common/mailbox.h"
#include "common/packets.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// The frontend that serves: what its offer calls, as texts.
class Serving {
 public:
  explicit Serving(std::string path)
      : path_(std::move(path)),
        offer_(&shard_,
               {.share = [this](int num_engines) { return Share(num_engines); },
                .introduce = [this](const std::string& a) { calls.Push("introduce " + a); },
                .retire =
                    [this](pid_t successor) {
                      calls.Push(successor == getpid() ? "retire" : "retire another");
                      return counts;
                    },
                .take_back = [this] { calls.Push("take back"); }}) {
    REQUIRE(offer_.Listen(path_).ok());
    shard_.Start();
  }
  ~Serving() {
    shard_.Stop();
    shard_.Join();
  }

  std::string Next() {
    if (taken_.empty()) {
      calls.WaitFor(std::chrono::seconds(20));
      calls.Drain(&taken_);
    }
    if (taken_.empty()) return "nothing";
    const std::string first = taken_.front();
    taken_.erase(taken_.begin());
    return first;
  }
  void Close(const std::string& why) {
    Run([this, why] { offer_.Close(why); });
  }
  void Run(std::function<void()> function) {
    std::promise<void> done;
    shard_.Post([&] {
      function();
      done.set_value();
    });
    REQUIRE(done.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  }

  Mailbox<std::string> calls;
  std::string refusal;  // set before a claim
  std::string listens_at;
  bool is_from_systemd = false;
  std::string adapters;
  std::string counts;

 private:
  StatusOr<Estate> Share(int num_engines) {
    if (!refusal.empty()) return FailedPreconditionError(refusal);
    calls.Push("share with " + std::to_string(num_engines));
    Estate estate;
    estate.folder_lock = *MakeMemoryFile("lock", "the lock");
    estate.listener.fd = *MakeMemoryFile("listener", "the listener");
    estate.listener.path = listens_at;
    estate.listener.is_from_systemd = is_from_systemd;
    estate.adapters = adapters;
    return estate;
  }

  const std::string path_;
  std::vector<std::string> taken_;
  Shard shard_{0};
  HandOverOffer offer_;
};

// The shard of the next one, and how its claim ended.
struct Standing {
  explicit Standing(HandOverClaim made) : claim(std::move(made)) {
    claim->WatchEnd(&shard, [this](const StatusOr<std::string>& end) { ended.set_value(end); });
    shard.Start();
  }
  ~Standing() {
    shard.Stop();
    shard.Join();
    claim.reset();
  }
  StatusOr<std::string> End() {
    auto future = ended.get_future();
    REQUIRE(future.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    return future.get();
  }

  Shard shard{0};
  std::optional<HandOverClaim> claim;
  std::promise<StatusOr<std::string>> ended;
};

HandOverClaim MakeClaim(const std::string& path) {
  StatusOr<std::optional<HandOverClaim>> claim = HandOverClaim::Make(path, 2);
  REQUIRE(claim.ok());
  REQUIRE(claim->has_value());
  return std::move(**claim);
}

std::string RefusalOf(const std::string& path) {
  const auto claim = HandOverClaim::Make(path, 2);
  return claim.ok() ? "not refused" : claim.status().message();
}

// A process that knows another protocol.
UniqueFd ConnectTo(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  REQUIRE(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

TEST_CASE("hand-over: sockets pass to the next frontend, and the one before retires") {
  const TempFolder folder;
  Serving serving(folder.PathOf("hand-over"));
  serving.listens_at = "/run/x y.sock";
  HandOverClaim claim = MakeClaim(folder.PathOf("hand-over"));
  CHECK(serving.Next() == "share with 2");
  CHECK(*ReadMemoryFile(claim.estate().folder_lock.get()) == "the lock");
  CHECK(*ReadMemoryFile(claim.estate().listener.fd.get()) == "the listener");
  CHECK(claim.estate().listener.path == "/run/x y.sock");
  CHECK_FALSE(claim.estate().listener.is_from_systemd);
  CHECK((fcntl(claim.estate().listener.fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
  Standing next(std::move(claim));
  REQUIRE(next.claim->SendBound("ipc:///run/x").ok());
  CHECK(serving.Next() == "introduce ipc:///run/x");
  serving.counts = std::string(3 * kMaxPacketBytes, '7');
  REQUIRE(next.claim->SendServing().ok());
  CHECK(serving.Next() == "retire");
  const StatusOr<std::string> counts = next.End();
  REQUIRE(counts.ok());
  CHECK(*counts == serving.counts);
}

TEST_CASE("hand-over: what is counted later reaches the frontend that serves") {
  const TempFolder folder;
  const std::string path = folder.PathOf("counts");
  CHECK_FALSE(LateCounts::Send(path, "nobody is there").ok());
  Mailbox<std::string> taken;
  Shard shard{0};
  std::optional<LateCounts> late(std::in_place, &shard,
                                 [&](const std::string& counts) { taken.Push(counts); });
  REQUIRE(late->Listen(path).ok());
  shard.Start();
  for (const std::string& counts : {std::string("1"), std::string(3 * kMaxPacketBytes, '2')}) {
    REQUIRE(LateCounts::Send(path, counts).ok());
    std::vector<std::string> arrived;
    taken.WaitFor(std::chrono::seconds(20));
    taken.Drain(&arrived);
    CHECK(arrived == std::vector{counts});
  }
  shard.Stop();
  shard.Join();
  late.reset();
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("hand-over: systemd's socket stays known as such") {
  const TempFolder folder;
  Serving serving(folder.PathOf("s"));
  serving.is_from_systemd = true;
  HandOverClaim claim = MakeClaim(folder.PathOf("s"));
  CHECK(claim.estate().listener.is_from_systemd);
  CHECK(claim.estate().listener.path.empty());
}

TEST_CASE("hand-over: a list of adapters of any length passes to the next frontend") {
  const TempFolder folder;
  Serving serving(folder.PathOf("s"));
  for (const size_t size : {size_t{0}, size_t{1}, 3 * kMaxPacketBytes}) {
    serving.adapters = std::string(size, 'a');
    HandOverClaim claim = MakeClaim(folder.PathOf("s"));
    CHECK(serving.Next() == "share with 2");
    CHECK(claim.estate().adapters == serving.adapters);
  }
}

TEST_CASE("hand-over: where nobody serves there is no claim") {
  const TempFolder folder;
  const auto absent = HandOverClaim::Make(folder.PathOf("absent"), 1);
  REQUIRE(absent.ok());
  CHECK_FALSE(absent->has_value());
  { const Serving gone(folder.PathOf("gone")); }
  const auto left = HandOverClaim::Make(folder.PathOf("gone"), 1);
  REQUIRE(left.ok());
  CHECK_FALSE(left->has_value());
  CHECK(HandOverClaim::Make(std::string(200, 'x'), 1).status().code() ==
        StatusCode::kInvalidArgument);
}

TEST_CASE("hand-over: the end of the next frontend gives everything back, again and again") {
  const TempFolder folder;
  const std::string path = folder.PathOf("s");
  Serving serving(path);
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    { const HandOverClaim early = MakeClaim(path); }
    CHECK(serving.Next() == "share with 2");
    {
      const HandOverClaim late = MakeClaim(path);
      CHECK(serving.Next() == "share with 2");
      REQUIRE(late.SendBound("a").ok());
      CHECK(serving.Next() == "introduce a");
    }
    CHECK(serving.Next() == "take back");
  }
}

TEST_CASE("hand-over: the end of the frontend that serves reaches the next one") {
  const TempFolder folder;
  std::optional<Serving> serving(std::in_place, folder.PathOf("s"));
  Standing next(MakeClaim(folder.PathOf("s")));
  serving.reset();
  const StatusOr<std::string> end = next.End();
  REQUIRE(end.ok());
  CHECK(end->empty());
}

TEST_CASE("hand-over: refusals carry their reason, at the start and later") {
  const TempFolder folder;
  const std::string path = folder.PathOf("s");
  Serving serving(path);
  serving.refusal = "engine 0 is foreign";
  CHECK(RefusalOf(path) == "engine 0 is foreign");
  serving.refusal = "";
  Standing next(MakeClaim(path));
  CHECK(serving.Next() == "share with 2");
  CHECK(RefusalOf(path) == "another frontend is about to take over");
  REQUIRE(next.claim->SendBound("a").ok());
  CHECK(serving.Next() == "introduce a");
  serving.Close("the server is shutting down");
  const Status end = next.End().status();
  CHECK(end.code() == StatusCode::kFailedPrecondition);
  CHECK(end.message() == "the server is shutting down");
  CHECK(serving.Next() == "take back");
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("hand-over: what no frontend sends is refused and changes nothing") {
  const TempFolder folder;
  const std::string path = folder.PathOf("s");
  Serving serving(path);
  for (const std::string& bytes :
       {std::string("?"), std::string(1, '\0'), std::string(kMaxPacketBytes, 'x')}) {
    const UniqueFd odd = ConnectTo(path);
    REQUIRE(SendPacket(odd.get(), bytes).ok());
    const StatusOr<Packet> reply = ReceivePacket(odd.get(), 20'000);
    REQUIRE(reply.ok());
    CHECK(reply->bytes == "ra message that this version does not know");
  }
  const HandOverClaim claim = MakeClaim(path);
  CHECK(serving.Next() == "share with 2");
}

}  // namespace
}  // namespace tandem
