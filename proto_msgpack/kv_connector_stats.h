#pragma once

// What a KV connector counts: SchedulerStats::kv_connector_stats, in the form of vLLM 0.33's
// OffloadingConnector, whose series describe themselves:
//   {types: {name: "counter" | "gauge" | "histogram"},
//    data: {name: {[label values]: number, or a histogram's list of observations}},
//    info: {label: value} or nil}
// A MultiConnector's has one such map for each of its connectors: {name: {data: map}}.
// Thread: pure functions. Failure: malformed bytes are INVALID_ARGUMENT.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {

struct ConnectorSeries {
  enum class Kind { kCounter, kGauge, kHistogram };
  std::string name;  // without the _total of a counter
  Kind kind = Kind::kCounter;
  std::vector<std::string> labels = {};  // values; their names are known by the name of the series
  // A counter's increase or a gauge's value; a histogram's observations.
  std::vector<double> values = {};

  friend bool operator==(const ConnectorSeries&, const ConnectorSeries&) = default;
};

struct KvConnectorStats {
  std::vector<ConnectorSeries> series;
  std::vector<std::pair<std::string, std::string>> info;  // facts, as labels of a constant 1

  friend bool operator==(const KvConnectorStats&, const KvConnectorStats&) = default;
};

// REQUIRES: counters and gauges have one value.
RawValue Packed(const KvConnectorStats& stats);
// Of a MultiConnector, by the names of its connectors. Nil if all of them are.
RawValue PackedByConnector(const std::vector<std::pair<std::string_view, RawValue>>& stats);
// Of one connector, or of all that a MultiConnector has.
StatusOr<KvConnectorStats> UnpackKvConnectorStats(const RawValue& value);
// What a report has that is older than one that has been read already. Nil if it is malformed.
RawValue WithoutGauges(const RawValue& value);

}  // namespace tandem::wire
