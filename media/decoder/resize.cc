#include "media/decoder/resize.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

constexpr size_t kChannels = 3;
constexpr int kMaxPrecision = 22;         // bits of a weight's fraction
constexpr double kWeightLimit = 1 << 15;  // of int16
constexpr double kCubicSlope = -0.5;      // the free parameter of the cubic filter

double Linear(double x) {
  x = std::abs(x);
  return x < 1 ? 1 - x : 0;
}

double Cubic(double x) {
  x = std::abs(x);
  if (x < 1) return ((kCubicSlope + 2) * x - (kCubicSlope + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kCubicSlope;
  return 0;
}

// Of one output pixel along an axis: the input pixels that make it.
struct Window {
  int64_t first = 0;
  size_t begin = 0, count = 0;  // of its weights
};

struct AxisWeights {
  std::vector<Window> windows;  // of each output pixel
  std::vector<int16_t> weights;
  int precision = 0;  // a weight of 1 is 1 << precision
};

// Along an axis from `from` pixels to `to`.
AxisWeights MakeWeights(int64_t from, int64_t to, int32_t resample) {
  const auto filter = resample == kBicubic ? Cubic : Linear;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double widening = std::max(scale, 1.0);  // of the filter, when the image shrinks
  const double support = (resample == kBicubic ? 2 : 1) * widening;
  AxisWeights axis;
  std::vector<double> exact;
  double largest = 0;
  for (int64_t i = 0; i < to; ++i) {
    const double center = scale * (static_cast<double>(i) + 0.5);
    const int64_t first =
        std::max(static_cast<int64_t>(std::trunc(center - support + 0.5)), int64_t{0});
    const int64_t end = std::min(static_cast<int64_t>(std::trunc(center + support + 0.5)), from);
    const size_t begin = exact.size();
    double sum = 0;
    for (int64_t j = first; j < end; ++j) {
      exact.push_back(filter((static_cast<double>(j) - center + 0.5) * (1 / widening)));
      sum += exact.back();
    }
    for (size_t w = begin; w < exact.size(); ++w) {
      if (sum != 0) exact[w] /= sum;
      largest = std::max(largest, exact[w]);
    }
    axis.windows.push_back({first, begin, exact.size() - begin});
  }
  // As many bits as let the largest weight fit.
  while (axis.precision < kMaxPrecision &&
         std::floor(0.5 + largest * std::exp2(axis.precision + 1)) < kWeightLimit) {
    ++axis.precision;
  }
  for (const double weight : exact) {  // halves are rounded away from zero
    axis.weights.push_back(static_cast<int16_t>(std::round(weight * std::exp2(axis.precision))));
  }
  return axis;
}

uint8_t Rounded(int32_t sum, int precision) {
  return static_cast<uint8_t>(std::clamp((sum + (1 << (precision - 1))) >> precision, 0, 255));
}

RgbImage ResizeX(const RgbImage& image, int32_t width, int32_t resample) {
  const AxisWeights axis = MakeWeights(image.size.width, width, resample);
  RgbImage result{.size = {.height = image.size.height, .width = width}, .rgb = {}};
  result.rgb.resize(static_cast<size_t>(result.size.num_pixels()) * kChannels);
  uint8_t* to = result.rgb.data();
  for (int64_t y = 0; y < image.size.height; ++y) {
    const uint8_t* row = image.rgb.data() + y * image.size.width * int64_t{kChannels};
    for (const Window& window : axis.windows) {
      const uint8_t* from = row + window.first * int64_t{kChannels};
      const int16_t* weights = axis.weights.data() + window.begin;
      int32_t sums[kChannels] = {};
      for (size_t i = 0; i < window.count; ++i) {
        for (size_t channel = 0; channel < kChannels; ++channel) {
          sums[channel] += weights[i] * from[i * kChannels + channel];
        }
      }
      for (const int32_t sum : sums) *to++ = Rounded(sum, axis.precision);
    }
  }
  return result;
}

RgbImage ResizeY(const RgbImage& image, int32_t height, int32_t resample) {
  const AxisWeights axis = MakeWeights(image.size.height, height, resample);
  RgbImage result{.size = {.height = height, .width = image.size.width}, .rgb = {}};
  result.rgb.resize(static_cast<size_t>(result.size.num_pixels()) * kChannels);
  const size_t row_bytes = static_cast<size_t>(image.size.width) * kChannels;
  std::vector<int32_t> sums(row_bytes);
  uint8_t* to = result.rgb.data();
  for (const Window& window : axis.windows) {
    std::fill(sums.begin(), sums.end(), 0);
    for (size_t i = 0; i < window.count; ++i) {
      const uint8_t* from = image.rgb.data() + (static_cast<size_t>(window.first) + i) * row_bytes;
      const int32_t weight = axis.weights[window.begin + i];
      for (size_t x = 0; x < row_bytes; ++x) sums[x] += weight * from[x];
    }
    for (const int32_t sum : sums) *to++ = Rounded(sum, axis.precision);
  }
  return result;
}

}  // namespace

RgbImage Resize(RgbImage image, ImageSize size, int32_t resample) {
  CHECK(image.size.num_pixels() > 0 && size.num_pixels() > 0);
  CHECK_EQ(image.rgb.size(), static_cast<size_t>(image.size.num_pixels()) * kChannels);
  if (size.width != image.size.width) image = ResizeX(image, size.width, resample);
  if (size.height != image.size.height) image = ResizeY(image, size.height, resample);
  return image;
}

}  // namespace tandem
