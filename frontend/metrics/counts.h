#pragma once

// What the counters and histograms of a registry have counted, in a form that another process can
// add to its own: a frontend that is replaced hands them over (frontend/succession.h). Gauges are
// not part of it. Thread: any. Failure: INVALID_ARGUMENT, for a text that CountsToText did not
// make.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "frontend/metrics/instruments.h"

namespace tandem {

struct SeriesCount {
  std::string help;
  double sum = 0;  // a counter's value
  // Of a histogram: its bounds, and the number of values in each bucket, the last one without a
  // bound. Empty: a counter.
  std::vector<double> bounds = {};
  std::vector<double> in_buckets = {};

  bool is_histogram() const { return !in_buckets.empty(); }
};

// By name and labels.
using Counts = std::map<std::pair<std::string, MetricLabels>, SeriesCount>;

Counts ReadCounts(const prometheus::Registry& registry);
// What `now` has beyond `before`; series without a difference are left out.
Counts CountsSince(const Counts& before, const Counts& now);
// Series that are not there are created. One that is of another kind, or whose bounds are others,
// stays as it is.
void AddCounts(const Counts& counts, prometheus::Registry* registry);

std::string CountsToText(const Counts& counts);
StatusOr<Counts> CountsFromText(std::string_view text);

}  // namespace tandem
