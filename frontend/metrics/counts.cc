#include "frontend/metrics/counts.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using Json = nlohmann::json;

SeriesCount HistogramCount(const prometheus::ClientMetric::Histogram& histogram) {
  SeriesCount count;
  count.sum = histogram.sample_sum;
  double below = 0;  // buckets are cumulative
  for (const auto& bucket : histogram.bucket) {
    const auto up_to_here = static_cast<double>(bucket.cumulative_count);
    count.in_buckets.push_back(up_to_here - below);
    below = up_to_here;
    if (std::isfinite(bucket.upper_bound)) count.bounds.push_back(bucket.upper_bound);
  }
  return count;
}

// False: a difference of two kinds of series, or of other buckets.
bool Subtract(const SeriesCount& before, SeriesCount* count) {
  if (before.bounds != count->bounds) return false;
  count->sum -= before.sum;
  for (size_t i = 0; i < count->in_buckets.size(); ++i) {
    count->in_buckets[i] -= before.in_buckets[i];
  }
  return true;
}

bool HasCounted(const SeriesCount& count) {
  return count.sum != 0 || std::ranges::any_of(count.in_buckets, [](double n) { return n != 0; });
}

void AddHistogram(const std::string& name, const MetricLabels& labels, const SeriesCount& count,
                  prometheus::Registry* registry) {
  prometheus::Histogram& histogram = prometheus::BuildHistogram()
                                         .Name(name)
                                         .Help(count.help)
                                         .Register(*registry)
                                         .Add(labels, count.bounds);
  if (HistogramCount(histogram.Collect().histogram).bounds != count.bounds) return;
  histogram.ObserveMultiple(count.in_buckets, count.sum);
}

SeriesCount CountFrom(const Json& json) {
  return {.help = json.at("help").get<std::string>(),
          .sum = json.at("sum").get<double>(),
          .bounds = json.at("bounds").get<std::vector<double>>(),
          .in_buckets = json.at("in_buckets").get<std::vector<double>>()};
}

// A counter has neither, a histogram one bucket more than bounds, and nothing counts backwards.
bool IsWhole(const SeriesCount& count) {
  const size_t num_buckets = count.in_buckets.size();
  const auto is_bad = [](double n) { return !(n >= 0); };
  return (num_buckets == 0 ? count.bounds.empty() : num_buckets == count.bounds.size() + 1) &&
         std::ranges::is_sorted(count.bounds) && std::ranges::none_of(count.in_buckets, is_bad) &&
         (count.is_histogram() || count.sum >= 0);
}

}  // namespace

Counts ReadCounts(const prometheus::Registry& registry) {
  Counts counts;
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      SeriesCount count;
      if (family.type == prometheus::MetricType::Counter) {
        count.sum = metric.counter.value;
      } else if (family.type == prometheus::MetricType::Histogram) {
        count = HistogramCount(metric.histogram);
      } else {
        continue;
      }
      count.help = family.help;
      MetricLabels labels;
      for (const auto& label : metric.label) labels[label.name] = label.value;
      counts.emplace(std::pair(family.name, std::move(labels)), std::move(count));
    }
  }
  return counts;
}

Counts CountsSince(const Counts& before, const Counts& now) {
  Counts since;
  for (const auto& [key, count] : now) {
    SeriesCount difference = count;
    const auto earlier = before.find(key);
    if (earlier != before.end() && !Subtract(earlier->second, &difference)) continue;
    if (HasCounted(difference)) since.emplace(key, std::move(difference));
  }
  return since;
}

void AddCounts(const Counts& counts, prometheus::Registry* registry) {
  std::map<std::string, prometheus::MetricType> types;  // the library refuses a second one
  for (const auto& family : registry->Collect()) types[family.name] = family.type;
  for (const auto& [key, count] : counts) {
    const auto& [name, labels] = key;
    const auto type =
        count.is_histogram() ? prometheus::MetricType::Histogram : prometheus::MetricType::Counter;
    if (types.emplace(name, type).first->second != type) continue;
    if (count.is_histogram()) {
      AddHistogram(name, labels, count, registry);
    } else {
      prometheus::BuildCounter()
          .Name(name)
          .Help(count.help)
          .Register(*registry)
          .Add(labels)
          .Increment(count.sum);
    }
  }
}

std::string CountsToText(const Counts& counts) {
  Json list = Json::array();
  for (const auto& [key, count] : counts) {
    list.push_back({{"name", key.first},
                    {"labels", key.second},
                    {"help", count.help},
                    {"sum", count.sum},
                    {"bounds", count.bounds},
                    {"in_buckets", count.in_buckets}});
  }
  return list.dump();
}

StatusOr<Counts> CountsFromText(std::string_view text) {
  Counts counts;
  try {
    const Json list = Json::parse(text);
    if (!list.is_array()) return InvalidArgumentError("no counts of a frontend: no list");
    for (const Json& json : list) {
      SeriesCount count = CountFrom(json);
      if (!IsWhole(count)) return InvalidArgumentError("counts that do not add up");
      counts.emplace(
          std::pair(json.at("name").get<std::string>(), json.at("labels").get<MetricLabels>()),
          std::move(count));
    }
  } catch (const Json::exception& error) {
    return InvalidArgumentError("no counts of a frontend: " + std::string(error.what()));
  }
  return counts;
}

}  // namespace tandem
