#include "frontend/metrics/exposition.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <string_view>

#include "common/strings.h"

namespace tandem {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;
using Label = ClientMetric::Label;

void AppendNumber(double value, std::string* out) {
  if (std::isnan(value)) {
    *out += "NaN";
    return;
  }
  if (std::isinf(value)) {
    *out += value > 0 ? "+Inf" : "-Inf";
    return;
  }
  // Shortest text that reads back as the same number, fixed between 1e-4 and 1e6.
  std::array<char, 400> text;
  const double size = std::abs(value);
  const bool fixed = value == 0 || (size >= 1e-4 && size < 1e6);
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  const std::string_view digits(text.data(), static_cast<size_t>(end - text.data()));
  *out += digits;
  if (fixed && digits.find('.') == std::string_view::npos) *out += ".0";
}

void AppendEscaped(std::string_view text, bool quotes, std::string* out) {
  for (const char c : text) {
    if (c == '\\') {
      *out += "\\\\";
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '"' && quotes) {
      *out += "\\\"";
    } else {
      *out += c;
    }
  }
}

// {a="1",le="0.5",z="2"}; `extra` is put at its alphabetical place.
void AppendLabels(const std::vector<Label>& labels, std::string_view extra_name,
                  std::string_view extra_value, std::string* out) {
  if (labels.empty() && extra_name.empty()) return;
  char separator = '{';
  const auto append = [&](std::string_view name, std::string_view value) {
    *out += separator;
    separator = ',';
    out->append(name).append("=\"");
    AppendEscaped(value, /*quotes=*/true, out);
    *out += '"';
  };
  bool extra_done = extra_name.empty();
  for (const Label& label : labels) {
    if (!extra_done && extra_name < label.name) {
      append(extra_name, extra_value);
      extra_done = true;
    }
    append(label.name, label.value);
  }
  if (!extra_done) append(extra_name, extra_value);
  *out += '}';
}

struct Line {
  std::string_view suffix;
  std::string_view label_name = {};
  std::string_view label_value = {};
};

void AppendSample(std::string_view name, const Line& line, const std::vector<Label>& labels,
                  double value, std::string* out) {
  out->append(name).append(line.suffix);
  AppendLabels(labels, line.label_name, line.label_value, out);
  *out += ' ';
  AppendNumber(value, out);
  *out += '\n';
}

//  # {trace_id="…"} 0.67 1520879607.789, at the end of the line before.
void AppendExemplar(const Exemplar& exemplar, std::string* out) {
  out->pop_back();
  out->append(" # {trace_id=\"").append(HexText(exemplar.trace_id)).append("\"} ");
  AppendNumber(exemplar.value, out);
  char time[32];
  std::snprintf(time, sizeof time, " %.3f\n", exemplar.unix_time);
  *out += time;
}

// exemplars: null for none.
void AppendHistogram(std::string_view name, const std::vector<Label>& labels,
                     const ClientMetric::Histogram& histogram, const Exemplars* exemplars,
                     std::string* out) {
  const auto count = static_cast<double>(histogram.sample_count);
  bool has_infinity = false;
  std::string bound;
  size_t bucket_idx = 0;
  for (const auto& bucket : histogram.bucket) {
    bound.clear();
    AppendNumber(bucket.upper_bound, &bound);
    has_infinity |= std::isinf(bucket.upper_bound);
    AppendSample(name, {"_bucket", "le", bound}, labels,
                 static_cast<double>(bucket.cumulative_count), out);
    const auto exemplar = exemplars == nullptr ? std::nullopt : exemplars->Read(bucket_idx);
    if (exemplar) AppendExemplar(*exemplar, out);
    ++bucket_idx;
  }
  if (!has_infinity) AppendSample(name, {"_bucket", "le", "+Inf"}, labels, count, out);
  AppendSample(name, {"_count"}, labels, count, out);
  AppendSample(name, {"_sum"}, labels, histogram.sample_sum, out);
}

std::string_view TypeName(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return "counter";
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Summary:
      return "summary";
    case MetricType::Histogram:
      return "histogram";
    default:
      return "untyped";
  }
}

// What HELP and TYPE say of a family.
struct FamilyHead {
  std::string_view name;
  std::string_view type;
};

FamilyHead HeadOf(const prometheus::MetricFamily& family, bool is_open_metrics) {
  FamilyHead head = {family.name, TypeName(family.type)};
  if (!is_open_metrics) return head;
  constexpr std::string_view kTotal = "_total";
  const bool is_counter = family.type == MetricType::Counter;
  if (is_counter && head.name.ends_with(kTotal)) {
    head.name.remove_suffix(kTotal.size());
  } else if (is_counter || head.type == "untyped") {
    head.type = "unknown";  // its counters end in _total
  }
  return head;
}

// find_exemplars: null in the text format 0.0.4.
void AppendFamily(const prometheus::MetricFamily& family, const FindExemplars* find_exemplars,
                  std::string* out) {
  const bool is_open_metrics = find_exemplars != nullptr;
  const FamilyHead head = HeadOf(family, is_open_metrics);
  out->append("# HELP ").append(head.name).append(" ");
  AppendEscaped(family.help, /*quotes=*/is_open_metrics, out);
  out->append("\n# TYPE ").append(head.name).append(" ").append(head.type);
  *out += '\n';
  // The registry keeps children in hash order; a sorted page is easier to read.
  std::vector<std::pair<std::vector<Label>, const ClientMetric*>> children;
  for (const ClientMetric& metric : family.metric) {
    children.emplace_back(metric.label, &metric);
    std::sort(children.back().first.begin(), children.back().first.end());
  }
  std::sort(children.begin(), children.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [labels, metric] : children) {
    switch (family.type) {
      case MetricType::Counter:
        AppendSample(family.name, {""}, labels, metric->counter.value, out);
        break;
      case MetricType::Gauge:
        AppendSample(family.name, {""}, labels, metric->gauge.value, out);
        break;
      case MetricType::Histogram:
        AppendHistogram(family.name, labels, metric->histogram,
                        is_open_metrics ? (*find_exemplars)(family, *metric) : nullptr, out);
        break;
      case MetricType::Summary:
        AppendSample(family.name, {"_count"}, labels,
                     static_cast<double>(metric->summary.sample_count), out);
        AppendSample(family.name, {"_sum"}, labels, metric->summary.sample_sum, out);
        break;
      default:
        AppendSample(family.name, {""}, labels, metric->untyped.value, out);
    }
  }
}

}  // namespace

std::string MetricNumber(double value) {
  std::string text;
  AppendNumber(value, &text);
  return text;
}

std::string Exposition(const std::vector<prometheus::MetricFamily>& families) {
  std::string text;
  text.reserve(128 << 10);
  for (const auto& family : families) {
    if (!family.metric.empty()) AppendFamily(family, nullptr, &text);
  }
  return text;
}

std::string OpenMetricsExposition(const std::vector<prometheus::MetricFamily>& families,
                                  const FindExemplars& find_exemplars) {
  std::string text;
  text.reserve(128 << 10);
  for (const auto& family : families) {
    if (!family.metric.empty()) AppendFamily(family, &find_exemplars, &text);
  }
  return text + "# EOF\n";
}

bool WantsOpenMetrics(std::string_view accept) {
  for (const std::string_view range : Split(accept, ',')) {
    const std::vector<std::string_view> parts = Split(range, ';');
    if (ToLower(StripAscii(parts.front())) != "application/openmetrics-text") continue;
    const bool is_refused = std::any_of(parts.begin() + 1, parts.end(), [](std::string_view part) {
      const std::string_view parameter = StripAscii(part);
      return parameter.starts_with("q=") && ParseNumber<double>(parameter.substr(2)) == 0.0;
    });
    if (!is_refused) return true;
  }
  return false;
}

}  // namespace tandem
