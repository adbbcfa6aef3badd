#include "deploy/cli/beat_watch.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("beat_watch: silence for a timeout is a hang, a stop of the watcher is not") {
  BeatWatch watch(10);
  CHECK_FALSE(watch.next_look().has_value());  // not ready yet
  watch.Start(100);
  CHECK(watch.next_look() == 102);
  for (int i = 0; i < 4; ++i) CHECK_FALSE(watch.Look(102 + 2 * i));
  CHECK_FALSE(watch.Look(5000));  // we were stopped
  CHECK(watch.next_look() == 5002);
  SECTION("a beat in time") {
    watch.OnBeat();
    for (int i = 0; i < 5; ++i) CHECK_FALSE(watch.Look(5002 + 2 * i));
    CHECK(watch.Look(5012));
  }
  SECTION("no beat") { CHECK(watch.Look(5002)); }
  SECTION("its process has ended") {
    watch.Stop();
    CHECK_FALSE(watch.next_look().has_value());
  }
}

TEST_CASE("beat_watch: without a timeout there is no look") {
  BeatWatch watch(0);
  watch.Start(1);
  CHECK_FALSE(watch.next_look().has_value());
}

}  // namespace
}  // namespace tandem
