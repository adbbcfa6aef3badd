#pragma once

// The Prometheus text format 0.0.4, written the way Python's client writes it, because recording
// rules match label values as text: le="1.0", labels in alphabetical order. Pure; any thread.

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace tandem {

std::string Exposition(const std::vector<prometheus::MetricFamily>& families);

// "0.1", "1.0", "1e+06", "+Inf".
std::string MetricNumber(double value);

}  // namespace tandem
