#include "deploy/cli/bench/arrivals.h"

#include <cmath>
#include <random>

namespace tandem {
namespace {

double RateOf(const ArrivalRules& rules, size_t i, size_t count) {
  const double progress = count < 2 ? 0 : static_cast<double>(i) / static_cast<double>(count - 1);
  switch (rules.ramp_up) {
    case RampUp::kLinear:
      return rules.ramp_up_start_rps + (rules.ramp_up_end_rps - rules.ramp_up_start_rps) * progress;
    case RampUp::kExponential:
      return rules.ramp_up_start_rps *
             std::pow(rules.ramp_up_end_rps / rules.ramp_up_start_rps, progress);
    case RampUp::kNone:
      break;
  }
  return rules.request_rate;
}

double Gap(double rate, double burstiness, std::mt19937_64& random) {
  if (std::isinf(rate)) return 0;
  if (std::isinf(burstiness)) return 1 / rate;
  std::gamma_distribution<double> gamma(burstiness, 1 / (rate * burstiness));
  return gamma(random);
}

}  // namespace

Arrivals MakeArrivals(const ArrivalRules& rules, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Arrivals arrivals;
  double now = 0;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const double rate = RateOf(rules, i, static_cast<size_t>(count));
    // A linear ramp may start at 0; such a request waits for the first real rate, not forever.
    now += rate > 0 ? Gap(rate, rules.burstiness, random) : 0;
    arrivals.due.push_back(now);
    arrivals.rates.push_back(rate);
  }
  if (rules.ramp_up == RampUp::kNone && now > 0) {
    const double stretch = static_cast<double>(count) / rules.request_rate / now;
    for (double& due : arrivals.due) due *= stretch;
  }
  return arrivals;
}

}  // namespace tandem
