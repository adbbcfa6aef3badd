#pragma once

// What a connector counts until the scheduler's next statistics take it. Thread: engine loop.
// Names and labels: proto_msgpack/offload_series.h; they must outlive this.

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto_msgpack/kv_connector_stats.h"

namespace tandem {

class ConnectorCounts {
 public:
  using Labels = std::initializer_list<std::string_view>;
  using Info = std::vector<std::pair<std::string, std::string>>;

  explicit ConnectorCounts(Info info) : info_(std::move(info)) {}

  void Add(std::string_view counter, double by, Labels labels = {});
  void Set(std::string_view gauge, double value, Labels labels = {});
  void Observe(std::string_view histogram, double value, Labels labels = {});
  // Counts since the last call, gauges that have changed, and the info; nil: nothing has.
  wire::RawValue Take();

 private:
  using Kind = wire::ConnectorSeries::Kind;
  struct Series {
    std::string_view name;
    Kind kind;
    std::vector<std::string_view> labels;
    std::vector<double> values = {};  // since the last Take
    double reported = -1;             // of a gauge
  };
  Series& Find(std::string_view name, Kind kind, Labels labels);

  const Info info_;
  std::vector<Series> series_;
  bool is_first_ = true;
};

}  // namespace tandem
