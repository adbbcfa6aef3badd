#include "deploy/cli/bench/arrivals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> Gaps(const std::vector<double>& due) {
  std::vector<double> gaps;
  double last = 0;
  for (const double time : due) {
    gaps.push_back(time - last);
    last = time;
  }
  return gaps;
}

// Standard deviation over mean: 1 / sqrt(shape) for a Gamma distribution.
double Variation(const std::vector<double>& values) {
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size())) / mean;
}

TEST_CASE("MakeArrivals puts the last request at count / rate, whatever the burstiness") {
  for (const double burstiness : {0.25, 1.0, 4.0, kInfinity}) {
    for (const uint64_t seed : {0u, 7u}) {
      CAPTURE(burstiness, seed);
      const Arrivals arrivals =
          MakeArrivals({.request_rate = 50, .burstiness = burstiness}, 2000, seed);
      REQUIRE(arrivals.due.size() == 2000);
      CHECK(arrivals.due.back() == Approx(40));
      CHECK(std::is_sorted(arrivals.due.begin(), arrivals.due.end()));
      CHECK(arrivals.due.front() >= 0);
      const double expected = std::isinf(burstiness) ? 0 : 1 / std::sqrt(burstiness);
      CHECK(Variation(Gaps(arrivals.due)) == Approx(expected).epsilon(0.1).margin(1e-9));
    }
  }
}

TEST_CASE("MakeArrivals gives the same times for the same seed only") {
  const ArrivalRules rules{.request_rate = 3, .burstiness = 0.5};
  CHECK(MakeArrivals(rules, 20, 5).due == MakeArrivals(rules, 20, 5).due);
  CHECK(MakeArrivals(rules, 20, 5).due != MakeArrivals(rules, 20, 6).due);
}

TEST_CASE("MakeArrivals at an infinite rate is all at once") {
  CHECK(MakeArrivals({}, 3, 1).due == std::vector<double>{0, 0, 0});
}

TEST_CASE("MakeArrivals of a ramp moves from the start rate to the end rate") {
  ArrivalRules rules{.burstiness = kInfinity,
                     .ramp_up = RampUp::kLinear,
                     .ramp_up_start_rps = 1,
                     .ramp_up_end_rps = 5};
  CHECK(MakeArrivals(rules, 5, 0).rates == std::vector<double>{1, 2, 3, 4, 5});
  CHECK(MakeArrivals(rules, 5, 0).due.back() == Approx(1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4 + 1.0 / 5));

  rules.ramp_up = RampUp::kExponential;
  rules.ramp_up_end_rps = 16;
  const std::vector<double> rates = MakeArrivals(rules, 5, 0).rates;
  for (size_t i = 0; i < 5; ++i) CHECK(rates[i] == Approx(std::exp2(i)));

  rules.ramp_up = RampUp::kLinear;
  rules.ramp_up_start_rps = 0;
  CHECK(std::isfinite(MakeArrivals(rules, 5, 0).due.back()));
}

}  // namespace
}  // namespace tandem
