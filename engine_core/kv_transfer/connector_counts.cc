#include "engine_core/kv_transfer/connector_counts.h"

#include <algorithm>

namespace tandem {

ConnectorCounts::Series& ConnectorCounts::Find(std::string_view name, Kind kind, Labels labels) {
  const auto found = std::ranges::find_if(series_, [&](const Series& one) {
    return one.name == name && std::ranges::equal(one.labels, labels);
  });
  if (found != series_.end()) return *found;
  return series_.emplace_back(Series{name, kind, labels});
}

void ConnectorCounts::Add(std::string_view counter, double by, Labels labels) {
  std::vector<double>& values = Find(counter, Kind::kCounter, labels).values;
  values.empty() ? values.push_back(by) : void(values.front() += by);
}

void ConnectorCounts::Set(std::string_view gauge, double value, Labels labels) {
  Series& series = Find(gauge, Kind::kGauge, labels);
  series.values.clear();
  if (value != series.reported) series.values.push_back(value);
}

void ConnectorCounts::Observe(std::string_view histogram, double value, Labels labels) {
  Find(histogram, Kind::kHistogram, labels).values.push_back(value);
}

wire::RawValue ConnectorCounts::Take() {
  wire::KvConnectorStats stats;
  for (Series& series : series_) {
    if (series.values.empty()) continue;
    if (series.kind == Kind::kGauge) series.reported = series.values.front();
    stats.series.push_back({.name = std::string(series.name),
                            .kind = series.kind,
                            .labels = {series.labels.begin(), series.labels.end()},
                            .values = series.values});
    series.values.clear();
  }
  if (stats.series.empty() && !is_first_) return {};
  is_first_ = false;
  stats.info = info_;
  return wire::Packed(stats);
}

}  // namespace tandem
