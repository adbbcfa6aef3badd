#pragma once

// Limits that a load must keep: "e2el:p99:500" means that the 99th percentile of the end-to-end
// latency is at most 500 ms. Pure.

#include <string>
#include <vector>

#include "common/status.h"
#include "deploy/cli/bench/bench_figures.h"

namespace tandem {

struct LatencyLimit {
  std::string metric;     // ttft, tpot, itl, e2el
  std::string statistic;  // mean, median, p99
  double limit_ms = 0;

  std::string Field() const { return statistic + "_" + metric + "_ms"; }  // of a bench's result
  std::string ToString() const;                                           // as it was given
};

// "metric:statistic:ms", or "metric:ms" for p99, as --goodput writes it.
StatusOr<std::vector<LatencyLimit>> ParseLatencyLimits(const std::vector<std::string>& items);

// The percentiles that a bench must report for these limits: "50,99".
std::string PercentilesOf(const std::vector<LatencyLimit>& limits);

// Empty when the run keeps all limits and every request succeeded; else the broken limits with the
// measured values.
std::string BrokenLimits(const std::vector<LatencyLimit>& limits, const BenchFigures& figures);

}  // namespace tandem
