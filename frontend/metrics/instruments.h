#pragma once

// Counters, gauges and histograms as members that declare themselves in one line:
//   Counter num_preemptions{scope, "vllm:num_preemptions_total", "Requests preempted."};
// Each exists at 0 from the first scrape. Values live in a prometheus-cpp registry.
// Thread: declaring, one; Increment, Set, Add, Observe and Value, any (atomics; a histogram has its
// own short lock inside the library). Names carry their "_total" themselves.

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/metrics/buckets.h"
#include "frontend/metrics/exemplars.h"
#include "frontend/tracing/trace_id.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace tandem {

using MetricLabels = std::map<std::string, std::string>;

// Where the instruments of one owner are declared: a registry and the labels they all carry.
struct MetricScope {
  prometheus::Registry* registry;
  MetricLabels labels;

  MetricScope With(std::string_view label, std::string_view value) const;
};

// An older name that shows the same values; "" for none.
using DeprecatedAlias = std::string_view;

class Counter {
 public:
  Counter(const MetricScope& scope, std::string_view name, std::string_view help,
          DeprecatedAlias alias = {});
  void Increment(double by = 1);
  double Value() const;

 private:
  prometheus::Counter* counter_;
  prometheus::Counter* alias_ = nullptr;
};

class Gauge {
 public:
  Gauge(const MetricScope& scope, std::string_view name, std::string_view help,
        DeprecatedAlias alias = {});
  void Set(double value);
  void Add(double change);
  double Value() const;

 private:
  prometheus::Gauge* gauge_;
  prometheus::Gauge* alias_ = nullptr;
};

class Histogram {
 public:
  Histogram(const MetricScope& scope, std::string_view name, std::string_view help,
            const Buckets& buckets, DeprecatedAlias alias = {});
  void Observe(double value);
  // The trace, if set, becomes its bucket's exemplar.
  void Observe(double value, const TraceId& trace_id);
  const std::string& name() const { return name_; }
  const Exemplars& exemplars() const { return *exemplars_; }

 private:
  std::string name_;
  prometheus::Histogram* histogram_;
  prometheus::Histogram* alias_ = nullptr;
  std::unique_ptr<Exemplars> exemplars_;
};

// One instrument for each value of a label, picked by an enum whose values count from 0. The
// instrument may itself be a set, whose label and values follow.
template <class Instrument, class Enum, size_t kCount>
class LabelledSet {
 public:
  template <class... InnerLabels>
  LabelledSet(const MetricScope& scope, std::string_view name, std::string_view help,
              std::string_view label, const std::array<std::string_view, kCount>& values,
              const InnerLabels&... inner) {
    for (const std::string_view value : values) {
      instruments_.emplace_back(scope.With(label, value), name, help, inner...);
    }
  }
  Instrument& operator[](Enum value) { return instruments_[static_cast<size_t>(value)]; }
  const Instrument& operator[](Enum value) const {
    return instruments_[static_cast<size_t>(value)];
  }

 private:
  std::vector<Instrument> instruments_;
};

}  // namespace tandem
