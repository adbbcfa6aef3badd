// What towers are made of, against plain formulas on small grids.

#include <cmath>

#include "engine_core/models/patch_pool.h"
#include "engine_core/models/position_table.h"
#include "engine_core/models/qwen_tower.h"
#include "engine_core/models/step_rope.h"
#include "engine_core/models/window_order.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("patches of a merged row follow each other") {
  const std::vector<PatchPlace> places = PlacesOfPatches(4, 6, 2);
  REQUIRE(places.size() == 24);
  for (size_t i = 0; i < places.size(); ++i) {
    const auto cell = static_cast<int32_t>(i / 4), inside = static_cast<int32_t>(i % 4);
    CHECK(places[i] == PatchPlace{cell / 3 * 2 + inside / 2, cell % 3 * 2 + inside % 2});
  }
}

TEST_CASE("half of a head's pairs turn by the row, half by the column") {
  const std::vector<PatchPlace> places = {{0, 0}, {3, 5}, {31, 2}};
  const PatchAngles angles = AnglesOf(places, 16);  // 8 pairs
  REQUIRE(angles.cos.size() == 24);
  for (size_t t = 0; t < places.size(); ++t) {
    for (size_t pair = 0; pair < 8; ++pair) {
      const int position = pair < 4 ? places[t].row : places[t].column;
      const double angle = position / std::pow(10000.0, static_cast<double>(pair % 4) / 4);
      CHECK(angles.cos[t * 8 + pair] == Approx(std::cos(angle)).margin(1e-5));
      CHECK(angles.sin[t * 8 + pair] == Approx(std::sin(angle)).margin(1e-5));
    }
  }
}

TEST_CASE("positions between a table's rows are those of a plane through them") {
  // A table that is linear in both directions is interpolated without error.
  constexpr int64_t kSide = 5;
  std::vector<float> numbers;
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      numbers.push_back(static_cast<float>(y));
      numbers.push_back(static_cast<float>(10 * x - y));
    }
  }
  const int64_t height = GENERATE(2, 4, 10, 14), width = GENERATE(2, 6, 8);
  const std::vector<PatchPlace> places =
      PlacesOfPatches(static_cast<int32_t>(height), static_cast<int32_t>(width), 2);
  const PositionMix mix = MixPositions(kSide, places, height, width);
  REQUIRE(mix.rows.size() == 4 * places.size());
  REQUIRE(mix.weights.size() == mix.rows.size());
  std::vector<float> positions(2 * places.size());
  for (size_t i = 0; i < mix.rows.size(); ++i) {
    for (size_t column = 0; column < 2; ++column) {
      positions[i / 4 * 2 + column] +=
          mix.weights[i] * numbers[2 * static_cast<size_t>(mix.rows[i]) + column];
    }
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const double y = places[i].row * 4.0 / static_cast<double>(height - 1);
    const double x = places[i].column * 4.0 / static_cast<double>(width - 1);
    CHECK(positions[2 * i] == Approx(y).margin(1e-5));
    CHECK(positions[2 * i + 1] == Approx(10 * x - y).margin(1e-4));
  }
}

TEST_CASE("corners of a grid are corners of the table, which may be one row") {
  for (const int64_t size : {1, 2, 7, 48}) {
    const std::vector<TablePoint> points = TablePoints(size, 48);
    REQUIRE(points.size() == static_cast<size_t>(size));
    CHECK(points.front().before == 0);
    CHECK(points.front().part == 0);
    if (size > 1) CHECK(static_cast<float>(points.back().before) + points.back().part == 47);
    for (const TablePoint& point : points) CHECK(point.after <= 47);
  }
  CHECK(TablePoints(4, 1).back().after == 0);
}

TEST_CASE("cells stand window by window, smaller ones at the edges") {
  const WindowOrder order = OrderByWindows(3, 5, 2);
  CHECK(order.cells == std::vector<int32_t>{0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14});
  CHECK(order.ends == std::vector<int64_t>{4, 8, 10, 12, 14, 15});
  // Windows that fill the grid, and one window larger than it.
  CHECK(OrderByWindows(4, 4, 2).ends == std::vector<int64_t>{4, 8, 12, 16});
  CHECK(OrderByWindows(2, 3, 8).cells == std::vector<int32_t>{0, 1, 2, 3, 4, 5});
  CHECK(OrderByWindows(2, 3, 8).ends == std::vector<int64_t>{6});
}

TEST_CASE("sections of pairs turn by time, height and width") {
  RopeConfig rope;
  rope.sections = {2, 3, 1};
  CHECK(AxesOfPairs(rope, 6) == std::vector<int>{0, 0, 1, 1, 1, 2});
  rope.has_interleaved_sections = true;
  CHECK(AxesOfPairs(rope, 6) == std::vector<int>{0, 1, 2, 0, 1, 0});
  // What the shorter sections leave turns by time.
  rope.sections = {4, 2, 2};
  CHECK(AxesOfPairs(rope, 8) == std::vector<int>{0, 1, 2, 0, 1, 2, 0, 0});
}

TEST_CASE("an image of one size is cut row by row, colour by colour") {
  std::vector<float> pixels(3 * 4 * 6);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i);
  const std::vector<float> patches =
      CutPatches(Tensor(pixels.data(), DType::kF32, {1, 3, 4, 6}), 2);
  REQUIRE(patches.size() == pixels.size());
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t y = i / 3 * 2 + j / 2, x = i % 3 * 2 + j % 2;
        CHECK(patches[static_cast<size_t>(i * 12 + c * 4 + j)] ==
              static_cast<float>(c * 24 + y * 6 + x));
      }
    }
  }
}

TEST_CASE("patches of a pooled one are a square") {
  CHECK(PatchesOfPooled(16, 4) ==
        std::vector<int32_t>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15});
  CHECK(PatchesOfPooled(4, 4) == std::vector<int32_t>{0, 1, 2, 3});
}

TEST_CASE("an image whose grid or pixels do not fit is refused") {
  VisionConfig config;
  config.patch_size = 2;
  config.temporal_patch_size = 2;
  config.merge_size = 2;
  std::vector<float> pixels(24 * 24);
  const auto error = [&](int32_t t, int32_t h, int32_t w, int64_t rows, int64_t columns) {
    return CheckQwenImage(config, {.pixels = Tensor(pixels.data(), DType::kF32, {rows, columns}),
                                   .grid_t = t,
                                   .grid_h = h,
                                   .grid_w = w})
        .message();
  };
  CHECK(error(1, 4, 6, 24, 24).empty());
  CHECK_THAT(error(2, 4, 6, 24, 24), Catch::Matchers::Contains("[2, 4, 6]"));
  CHECK_THAT(error(1, 3, 8, 24, 24), Catch::Matchers::Contains("multiples of 2"));
  CHECK_FALSE(error(1, 0, 6, 24, 24).empty());
  CHECK_FALSE(error(1, -4, -6, 24, 24).empty());
  CHECK_FALSE(error(1, 1 << 20, 1 << 20, 24, 24).empty());
  CHECK_THAT(error(1, 4, 4, 24, 24), Catch::Matchers::Contains("[16, 24]"));
  CHECK_THAT(error(1, 4, 6, 12, 48), Catch::Matchers::Contains("[24, 24]"));
}

}  // namespace
}  // namespace tandem
