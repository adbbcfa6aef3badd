#include "frontend/engine_client/prefill_room.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Engines 0 and 1 compute prompts, 2 decodes. Blocks of 4 tokens; 10 of engine 0 are for others.
struct Setup {
  explicit Setup(int num_clients = 1) : room(3, num_clients) {
    room.Reset(0, 20, 4);
    room.Reset(1, 8, 4);
  }
  PrefillRoom room;
};

TEST_CASE("prefill room: prompts under way and those that are not read yet fill it") {
  Setup setup;
  PrefillRoom& room = setup.room;
  room.Begin("p1", 0, 17);
  room.Begin("p2", 0, 17);
  CHECK(room.num_blocks(0) == 8);
  CHECK(room.Fits(0, 12));  // the last token of a prompt is nobody's
  CHECK_FALSE(room.Fits(0, 13));
  room.AwaitReaders("p1", {2, {"a", "b"}});
  room.OnRead("stranger");
  room.OnRead("a");
  room.OnRead("a");
  CHECK_FALSE(room.Fits(0, 13));
  room.OnRead("b");
  CHECK(room.num_blocks(0) == 4);
  CHECK(room.End("p2") == 0);
  CHECK(room.End("p2") == kNoEngine);
  CHECK(room.num_blocks(0) == 0);
}

TEST_CASE("prefill room: a prompt that is alone may be larger, and shards share the room") {
  Setup setup(2);
  CHECK(setup.room.Fits(0, 1000));
  setup.room.Begin("p1", 0, 9);
  CHECK(setup.room.Fits(0, 13));
  CHECK_FALSE(setup.room.Fits(0, 17));
  setup.room.Begin("p2", 2, 1000);  // whose block size nobody knows
  CHECK(setup.room.Fits(2, 1000));
}

TEST_CASE("prefill room: what a dead engine held is gone, what it was to read is given up") {
  Setup setup;
  PrefillRoom& room = setup.room;
  room.Begin("p1", 0, 17);
  room.Begin("p2", 1, 9);
  room.AwaitReaders("p1", {2, {"a"}});
  SECTION("the one that decodes") {
    const std::vector<PrefillRoom::GivenUp> given_up = room.OnLost(2);
    REQUIRE(given_up.size() == 1);
    CHECK(given_up[0].prefill_id == "p1");
    CHECK(given_up[0].engine_index == 0);
    CHECK(room.num_blocks(1) == 2);
  }
  SECTION("a prefill engine") { CHECK(room.OnLost(0).empty()); }
  CHECK(room.num_blocks(0) == 0);
  room.OnRead("a");
  CHECK(room.num_blocks(0) == 0);
}

TEST_CASE("prefill room: what is held and read stays with a predecessor") {
  Setup setup;
  PrefillRoom& room = setup.room;
  room.Begin("p1", 0, 17);
  room.AwaitReaders("p1", {2, {"a"}});
  room.MakePredecessor(0);
  room.MakePredecessor(2);
  CHECK(room.num_blocks(0) == 0);
  CHECK(room.num_blocks(Predecessor(0, 3)) == 4);
  CHECK(room.OnLost(2).empty());
  const std::vector<PrefillRoom::GivenUp> given_up = room.OnLost(Predecessor(2, 3));
  REQUIRE(given_up.size() == 1);
  CHECK(given_up[0].engine_index == Predecessor(0, 3));
  CHECK(room.num_blocks(Predecessor(0, 3)) == 0);
}

}  // namespace
}  // namespace tandem
