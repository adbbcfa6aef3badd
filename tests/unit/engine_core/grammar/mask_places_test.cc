#include "engine_core/grammar/mask_places.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr RequestSlot kFirst{0}, kSecond{1};

TEST_CASE("MaskPlaces: a place that was set aside is nobody's until it is released") {
  MaskPlaces places(2, 3);
  CHECK(MaskPlaces::NumRows(2, 3) == 12);
  const int32_t row = places.RowOf(kFirst);
  CHECK(places.SetAside(kFirst, row));
  CHECK(places.RowOf(kFirst) != row);
  CHECK(places.RowOf(kFirst) != places.RowOf(kSecond));
  CHECK_FALSE(places.SetAside(kFirst, row));
  CHECK(places.num_spares() == 1);
  places.Release(row);
  CHECK(places.num_spares() == 2);
}

TEST_CASE("MaskPlaces: a slot without a place gets the next one that is released") {
  MaskPlaces places(2, 1);
  std::vector<int32_t> aside;
  for (int i = 0; i < 3; ++i) {
    aside.push_back(places.RowOf(kFirst));
    CHECK(places.SetAside(kFirst, aside.back()));
  }
  CHECK(places.RowOf(kFirst) == MaskPlaces::kNone);
  places.Release(aside[1]);
  CHECK(places.RowOf(kFirst) == aside[1]);
}

TEST_CASE("MaskPlaces: a place may become another slot's") {
  MaskPlaces places(2, 1);
  const int32_t row = places.RowOf(kFirst), before = places.RowOf(kSecond);
  places.SetAside(kFirst, row);
  places.Give(kSecond, row);
  CHECK(places.RowOf(kSecond) == row);
  places.SetAside(kFirst, places.RowOf(kFirst));
  CHECK(places.RowOf(kFirst) == before);
}

}  // namespace
}  // namespace tandem
