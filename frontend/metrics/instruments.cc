#include "frontend/metrics/instruments.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "common/clock.h"

namespace tandem {

namespace {

// The HELP of a series under its older name.
std::string AliasHelp(std::string_view name) {
  return "DEPRECATED: read " + std::string(name) + " instead.";
}

template <class Builder, class... Args>
auto* Declare(Builder builder, const MetricScope& scope, std::string_view name,
              const std::string& help, const Args&... args) {
  return &builder.Name(std::string(name))
              .Help(help)
              .Register(*scope.registry)
              .Add(scope.labels, args...);
}

}  // namespace

MetricScope MetricScope::With(std::string_view label, std::string_view value) const {
  MetricScope scope = *this;
  scope.labels.emplace(label, value);
  return scope;
}

Counter::Counter(const MetricScope& scope, std::string_view name, std::string_view help,
                 DeprecatedAlias alias) {
  counter_ = Declare(prometheus::BuildCounter(), scope, name, std::string(help));
  if (!alias.empty()) alias_ = Declare(prometheus::BuildCounter(), scope, alias, AliasHelp(name));
}

void Counter::Increment(double by) {
  counter_->Increment(by);
  if (alias_ != nullptr) alias_->Increment(by);
}

double Counter::Value() const { return counter_->Value(); }

Gauge::Gauge(const MetricScope& scope, std::string_view name, std::string_view help,
             DeprecatedAlias alias) {
  gauge_ = Declare(prometheus::BuildGauge(), scope, name, std::string(help));
  if (!alias.empty()) alias_ = Declare(prometheus::BuildGauge(), scope, alias, AliasHelp(name));
}

void Gauge::Set(double value) {
  gauge_->Set(value);
  if (alias_ != nullptr) alias_->Set(value);
}

void Gauge::Add(double change) {
  gauge_->Increment(change);
  if (alias_ != nullptr) alias_->Increment(change);
}

double Gauge::Value() const { return gauge_->Value(); }

Histogram::Histogram(const MetricScope& scope, std::string_view name, std::string_view help,
                     const Buckets& buckets, DeprecatedAlias alias)
    : name_(name), exemplars_(std::make_unique<Exemplars>(buckets)) {
  histogram_ = Declare(prometheus::BuildHistogram(), scope, name, std::string(help), buckets);
  if (alias.empty()) return;
  alias_ = Declare(prometheus::BuildHistogram(), scope, alias, AliasHelp(name), buckets);
}

void Histogram::Observe(double value) {
  histogram_->Observe(value);
  if (alias_ != nullptr) alias_->Observe(value);
}

void Histogram::Observe(double value, const TraceId& trace_id) {
  Observe(value);
  if (trace_id.is_set()) exemplars_->Add({trace_id, value, SystemClock().Unix()});
}

}  // namespace tandem
