#pragma once

// The Prometheus text format 0.0.4 and OpenMetrics 1.0.0 in the form of Python's client, which vLLM
// uses: le="1.0", labels in alphabetical order. Prometheus and recording rules match label values
// as text, and prometheus-cpp's own TextSerializer writes le="1", which are other series. Pure; any
// thread.

#include <prometheus/metric_family.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/metrics/exemplars.h"

namespace tandem {

std::string Exposition(const std::vector<prometheus::MetricFamily>& families);

// A histogram's exemplars, or null.
using FindExemplars = std::function<const Exemplars*(const prometheus::MetricFamily& family,
                                                     const prometheus::ClientMetric& metric)>;
// OpenMetrics: counters are announced without "_total", buckets have exemplars, "# EOF" ends it.
std::string OpenMetricsExposition(const std::vector<prometheus::MetricFamily>& families,
                                  const FindExemplars& find_exemplars);

// Whether an Accept header asks for OpenMetrics.
bool WantsOpenMetrics(std::string_view accept);

// "0.1", "1.0", "1e+06", "+Inf".
std::string MetricNumber(double value);

}  // namespace tandem
