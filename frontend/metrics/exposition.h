#pragma once

// The Prometheus text format 0.0.4 in the form of Python's client, which vLLM uses: le="1.0",
// labels in alphabetical order. Prometheus and recording rules match label values as text, and
// prometheus- cpp's own TextSerializer writes le="1", which are other series. Pure; any thread.

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace tandem {

std::string Exposition(const std::vector<prometheus::MetricFamily>& families);

// "0.1", "1.0", "1e+06", "+Inf".
std::string MetricNumber(double value);

}  // namespace tandem
