// Frontends that ask each other over real sockets, in one process.

#include "frontend/hand_over/probation_link.h"

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int kAsker = 2, kEngine = 3, kFirst = 9, kSecond = 80, kThird = 700, kGone = 5000;
constexpr double kLong = 600, kShort = 0.001;

// A frontend whose turns begin at once; the number is its process id.
class Frontend {
 public:
  Frontend(Shard* shard, const TempFolder& folder, int number, ProbationLink::Options options)
      : link(shard, options,
             {.others = [&folder, number] { return PathsOfOthers(folder, number); },
              .begin =
                  [this](int engine_index, ProbationLink::Callback left) {
                    CHECK(engine_index == kEngine);
                    turns[++num_turns] = std::move(left);
                    return num_turns;
                  },
              .end = [this](int64_t turn) { REQUIRE(turns.erase(turn) == 1); }}) {
    REQUIRE(link.Listen(PathOf(folder, number)).ok());
  }
  static std::string PathOf(const TempFolder& folder, int number) {
    return folder.PathOf("turns_" + std::to_string(number));
  }
  static std::vector<std::string> PathsOfOthers(const TempFolder& folder, int number) {
    std::vector<std::string> paths;
    for (const int other : {kGone, kThird, kFirst, kSecond}) {
      if (other != number) paths.push_back(PathOf(folder, other));
    }
    return paths;
  }

  std::map<int64_t, ProbationLink::Callback> turns;
  int64_t num_turns = 0;
  bool is_reserved = false;
  ProbationLink link;
};

class World {
 public:
  explicit World(double patience_s = kLong, double notice_s = kLong) {
    shard.Start();
    Run([&] {
      for (const int number : {kFirst, kSecond, kThird}) {
        frontends[number] = std::make_unique<Frontend>(
            &shard, folder, number,
            ProbationLink::Options{
                .num_engines = kEngine + 1, .patience_s = patience_s, .notice_s = notice_s});
      }
    });
  }
  ~World() {
    shard.Stop();
    shard.Join();
  }
  // On the thread of the sockets.
  void Run(std::function<void()> function) {
    std::promise<void> done;
    shard.Post([&] {
      function();
      done.set_value();
    });
    done.get_future().get();
  }
  void AwaitThat(const std::function<bool()>& condition) {
    bool holds = false;
    while (!holds) Run([&] { holds = condition(); });
  }
  Frontend& of(int number) { return *frontends.at(number); }
  void Reserve(int number) {
    Run([&] {
      Frontend& asks = of(number);
      asks.link.Reserve(
          kAsker, kEngine,
          [&asks](ProbationLink::Callback left) { asks.turns[0] = std::move(left); },
          [&asks] { asks.is_reserved = true; });
    });
  }
  // Awaits that it has a turn, and that those after it have none, and has its requests leave.
  void Leave(int number) {
    AwaitThat([&] { return !of(number).turns.empty(); });
    Run([&] {
      for (auto after = frontends.upper_bound(number); after != frontends.end(); ++after) {
        CHECK(after->second->turns.empty());
      }
      of(number).turns.begin()->second();
    });
  }
  size_t num_turns() const {
    size_t num_turns = 0;
    for (const auto& [number, frontend] : frontends) num_turns += frontend->turns.size();
    return num_turns;
  }

  TempFolder folder;
  Shard shard{0};
  std::map<int, std::unique_ptr<Frontend>> frontends;
};

TEST_CASE("probation link: all leave in the order of process ids, and stay away until release") {
  const int asks = GENERATE(kFirst, kSecond, kThird);
  World world;
  world.Reserve(asks);
  for (const int number : {kFirst, kSecond, kThird}) {
    world.Run([&] { CHECK_FALSE(world.of(asks).is_reserved); });
    world.Leave(number);
  }
  world.AwaitThat([&] { return world.of(asks).is_reserved; });
  world.Run([&] {
    CHECK(world.num_turns() == 3);
    world.of(asks).turns.clear();
    world.of(asks).link.Release(kAsker, /*has_ended=*/false);
  });
  world.AwaitThat([&] { return world.num_turns() == 0; });
}

TEST_CASE("probation link: one that ends is not waited for, and gives back what it had") {
  World world;
  world.Reserve(kFirst);
  world.Leave(kFirst);
  world.AwaitThat([&] { return world.of(kSecond).turns.size() == 1; });
  world.Run([&] { world.frontends.erase(kSecond); });  // before it has left
  world.Leave(kThird);
  world.AwaitThat([&] { return world.of(kFirst).is_reserved; });
  world.Run([&] { world.frontends.erase(kFirst); });
  world.AwaitThat([&] { return world.of(kThird).turns.empty(); });
}

TEST_CASE("probation link: one that does not reply is passed over, and waits no longer itself") {
  World world(kShort);
  world.Reserve(kFirst);
  world.Leave(kFirst);
  world.AwaitThat([&] { return world.of(kFirst).is_reserved; });
  // They have been asked, but have not left.
  world.Run([&] { CHECK(world.num_turns() == 3); });
  for (const int number : {kSecond, kThird}) {
    world.Run([&] { world.of(number).turns.begin()->second(); });
    world.AwaitThat([&] { return world.of(number).turns.empty(); });
  }
}

TEST_CASE("probation link: others come back to an engine that has ended once they know it") {
  World world(kLong, kShort);
  world.Reserve(kFirst);
  for (const int number : {kFirst, kSecond, kThird}) world.Leave(number);
  world.AwaitThat([&] { return world.of(kFirst).is_reserved; });
  world.Run([&] {
    world.of(kFirst).link.Release(kAsker, /*has_ended=*/true);
    CHECK(world.of(kSecond).turns.size() == 1);
  });
  world.AwaitThat([&] { return world.of(kThird).turns.empty(); });
}

}  // namespace
}  // namespace tandem
