#pragma once

// When each request of a run is due. Pure; the same seed gives the same times.
// Steady rate: gaps drawn from a Gamma distribution (shape = burstiness, mean = 1 / rate; shape 1
// is a Poisson process, infinite shape an even beat), then stretched so that the last request is
// due at count / rate. Ramp: the rate of request i lies between start and end; gaps are drawn at
// that rate and not stretched. Infinite rate: all at once.

#include <cstdint>
#include <limits>
#include <vector>

namespace tandem {

enum class RampUp { kNone, kLinear, kExponential };

struct ArrivalRules {
  double request_rate = std::numeric_limits<double>::infinity();  // per second
  double burstiness = 1;                                          // > 0, may be infinite
  RampUp ramp_up = RampUp::kNone;
  double ramp_up_start_rps = 0;
  double ramp_up_end_rps = 0;
};

struct Arrivals {
  std::vector<double> due;    // seconds after the beginning, ascending
  std::vector<double> rates;  // the rate each gap was drawn by
};

Arrivals MakeArrivals(const ArrivalRules& rules, int64_t count, uint64_t seed);

}  // namespace tandem
