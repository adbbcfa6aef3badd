#include "deploy/cli/top/history.h"

#include <limits>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

MetricsSample Sample(double time, double count) {
  MetricsSample sample;
  sample.time = time;
  sample.sums["n"] = count;
  return sample;
}

TEST_CASE("history: a rate looks back some seconds, and needs two samples") {
  History history;
  history.Add(Sample(0, 0), 100);
  CHECK_FALSE(history.Rate("n"));
  history.Add(Sample(1, 10), 101);
  CHECK(history.Rate("n") == 10);
  history.Add(Sample(10, 10), 110);
  CHECK(history.Rate("n") == 0);
  history.Add(Sample(11, 30), 111);  // from the sample at 1 s: no nearer one is 5 s old
  CHECK(history.Rate("n") == 2);
  CHECK(history.Rate("absent") == 0);
}

TEST_CASE("history: samples older than the window are gone, those of an earlier server too") {
  History history;
  for (int i = 0; i <= 100; ++i) history.Add(Sample(i, i), i);
  CHECK(history.window_s() == History::kWindowSeconds);
  history.Add(Sample(101, 3), 0.5);
  CHECK(history.window_s() == 0);
  CHECK(history.Newest("n") == 3);
  CHECK_FALSE(history.Rate("n"));
}

TEST_CASE("history: percentiles are of the window, else since the start") {
  History history;
  CHECK_FALSE(history.Quantile(0.5, "h"));
  MetricsSample first = Sample(0, 0);
  first.buckets["h"] = {{1, 8}, {2, 8}, {kInf, 8}};
  history.Add(first, 1);
  CHECK(history.Quantile(0.5, "h") == 0.5);
  CHECK_FALSE(history.Quantile(0.5, "absent"));
  MetricsSample second = Sample(1, 0);
  second.buckets["h"] = {{1, 8}, {2, 12}, {kInf, 12}};
  history.Add(second, 2);
  CHECK(history.Quantile(0.5, "h") == 1.5);
  CHECK(history.Quantile(1, "h") == 2);
  MetricsSample third = Sample(2, 0);
  third.buckets["h"] = {{1, 8}, {2, 12}, {kInf, 100}};
  history.Add(third, 3);
  CHECK(history.Quantile(0.99, "h") == 2);  // beyond the last bound
}

TEST_CASE("history: nothing observed has no percentile and no share") {
  History history;
  MetricsSample sample = Sample(0, 0);
  sample.buckets["h"] = {{1, 5}, {kInf, 5}};
  history.Add(sample, 1);
  sample.time = 1;
  history.Add(sample, 2);
  CHECK_FALSE(history.Quantile(0.5, "h"));
  CHECK_FALSE(history.Share("n", "n"));
}

}  // namespace
}  // namespace tandem
