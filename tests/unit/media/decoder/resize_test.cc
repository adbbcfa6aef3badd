#include "media/decoder/resize.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "common/random.h"
#include "media/image_spec.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

RgbImage RandomImage(int32_t height, int32_t width, uint64_t seed) {
  RgbImage image{.size = {.height = height, .width = width}, .rgb = {}};
  for (uint64_t i = 0; i < static_cast<uint64_t>(height) * static_cast<uint64_t>(width) * 3; ++i) {
    image.rgb.push_back(static_cast<uint8_t>(UniformAt(seed, i, 4) * 256));
  }
  return image;
}

double Filter(double x, int32_t resample) {
  x = std::abs(x);
  if (resample == kBilinear) return std::max(0.0, 1 - x);
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

// One axis in floating point: what output pixel `to` is of the input's values.
double Sample(const std::vector<double>& values, int32_t to, int32_t num_to, int32_t resample) {
  const double scale = static_cast<double>(values.size()) / num_to;
  const double widening = std::max(1.0, scale);
  const double center = (to + 0.5) * scale - 0.5;
  double sum = 0, total = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double weight = Filter((static_cast<double>(i) - center) / widening, resample);
    sum += weight * values[i];
    total += weight;
  }
  return sum / total;
}

double Clamped(double value) { return std::clamp(std::round(value), 0.0, 255.0); }

TEST_CASE("resized images are the filter's sums, along x, then along y") {
  const int32_t resample = GENERATE(kBilinear, kBicubic);
  const ImageSize from = GENERATE(ImageSize{1, 1}, ImageSize{9, 14}, ImageSize{40, 3});
  const ImageSize to = GENERATE(ImageSize{1, 1}, ImageSize{4, 28}, ImageSize{23, 5});
  CAPTURE(resample, from.height, from.width, to.height, to.width);
  const RgbImage image = RandomImage(from.height, from.width, 11);
  const RgbImage resized = Resize(image, to, resample);
  REQUIRE(resized.size == to);
  REQUIRE(resized.rgb.size() == static_cast<size_t>(to.num_pixels() * 3));
  int num_differences = 0;
  for (int32_t x = 0; x < to.width; ++x) {
    std::vector<double> column;  // red
    for (int32_t y = 0; y < from.height; ++y) {
      std::vector<double> row;
      for (int32_t i = 0; i < from.width; ++i) {
        row.push_back(image.rgb[static_cast<size_t>((y * from.width + i) * 3)]);
      }
      column.push_back(Clamped(Sample(row, x, to.width, resample)));
    }
    for (int32_t y = 0; y < to.height; ++y) {
      const double exact = Clamped(Sample(column, y, to.height, resample));
      const int got = resized.rgb[static_cast<size_t>((y * to.width + x) * 3)];
      REQUIRE(std::abs(got - exact) <= 1);
      if (got != static_cast<int>(exact)) ++num_differences;
    }
  }
  // Integer weights round otherwise here and there.
  CHECK(num_differences * 20 <= to.num_pixels());
}

TEST_CASE("one colour stays one colour") {
  for (const int32_t resample : {kBilinear, kBicubic}) {
    RgbImage image = RandomImage(31, 17, 12);
    std::fill(image.rgb.begin(), image.rgb.end(), uint8_t{201});
    for (const ImageSize size : {ImageSize{7, 50}, ImageSize{64, 2}, ImageSize{31, 17}}) {
      const RgbImage resized = Resize(image, size, resample);
      CHECK(std::ranges::all_of(resized.rgb, [](uint8_t value) { return value == 201; }));
    }
  }
}

TEST_CASE("an image of the wanted size stays as it is") {
  const RgbImage image = RandomImage(13, 19, 13);
  CHECK(Resize(image, image.size, kBicubic).rgb == image.rgb);
}

}  // namespace
}  // namespace tandem
