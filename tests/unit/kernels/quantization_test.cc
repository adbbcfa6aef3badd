#include "kernels/quantization.h"

#include <cmath>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("int8: the largest magnitude is 127, ties go to even, zeros have no scale") {
  std::vector<int8_t> q(4);
  const std::vector<float> row = {-127, 2.5f, 3.5f, 0};
  CHECK(QuantizeInt8(row, q.data()) == 1);
  CHECK(q == std::vector<int8_t>{-127, 2, 4, 0});
  const std::vector<float> zeros(4);
  CHECK(QuantizeInt8(zeros, q.data()) == 0);
  CHECK(q == std::vector<int8_t>(4));
}

TEST_CASE("a row that is not finite has a scale that is not finite") {
  std::vector<int8_t> q(3);
  std::vector<uint8_t> codes(3);
  Int4Group group;
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    const std::vector<float> row = {1, odd, 2};
    CHECK(!std::isfinite(QuantizeInt8(row, q.data())));
    CHECK(!std::isfinite(QuantizeInt4(row, 32, codes.data(), &group)));
  }
}

TEST_CASE("int4: every integer is a signed byte, and near its weight for groups of any range") {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> unit(0, 1);
  for (int trial = 0; trial < 2000; ++trial) {
    CAPTURE(trial);
    for (const int64_t group_size : {int64_t{32}, int64_t{128}}) {
      std::vector<float> row(200);
      // One end of the first group is the row's largest, the other is anywhere.
      const float low = -unit(engine);
      const float high = unit(engine);
      for (float& value : row) value = low + (high - low) * unit(engine);
      row[0] = trial % 2 == 0 ? 1.0f : -1.0f;
      std::vector<uint8_t> codes(row.size());
      std::vector<Int4Group> groups(7);
      const float scale = QuantizeInt4(row, group_size, codes.data(), groups.data());
      REQUIRE(scale == Approx(1.0f / 112));
      for (size_t i = 0; i < row.size(); ++i) {
        const Int4Group group = groups[i / static_cast<size_t>(group_size)];
        REQUIRE(codes[i] <= 15);
        // For every code, not only those that occur: panels hold it as a signed byte.
        REQUIRE(128 - group.zero() * group.factor() >= 0);
        REQUIRE(128 + (15 - group.zero()) * group.factor() <= 255);
        const int integer = (codes[i] - group.zero()) * group.factor();
        // Half a step; or the part of a lone outlier that a smaller factor cuts off.
        const auto bound = static_cast<float>(group.factor() + 15);
        REQUIRE(std::abs(static_cast<float>(integer) * scale - row[i]) <= bound * scale);
      }
    }
  }
}

TEST_CASE("int4: sixteen evenly spaced weights come back exactly") {
  std::vector<float> row;
  for (int i = 0; i < 16; ++i) row.push_back(static_cast<float>(i - 8) * 14);
  std::vector<uint8_t> codes(16);
  Int4Group group;
  const float scale = QuantizeInt4(row, 32, codes.data(), &group);
  for (int i = 0; i < 16; ++i) {
    CHECK(static_cast<float>((codes[static_cast<size_t>(i)] - group.zero()) * group.factor()) *
              scale ==
          row[static_cast<size_t>(i)]);
  }
}

}  // namespace
}  // namespace tandem
