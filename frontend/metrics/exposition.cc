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
  const double size = std::abs(value);
  // Most are counts: their digits take a quarter of the time that shortest ones take.
  if (size < 1e6 && value == std::trunc(value) && !std::signbit(value)) {
    std::array<char, 8> whole;
    const auto end =
        std::to_chars(whole.data(), whole.data() + whole.size(), static_cast<int>(value)).ptr;
    out->append(whole.data(), end).append(".0");
    return;
  }
  // Shortest text that reads back as the same number, fixed between 1e-4 and 1e6.
  std::array<char, 400> text;
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

// a="1",
void AppendLabel(const Label& label, std::string* out) {
  out->append(label.name).append("=\"");
  AppendEscaped(label.value, /*quotes=*/true, out);
  out->append("\",");
}

// {a="1",z="2"} and a blank. Labels are in order.
std::string LabelsText(const std::vector<Label>& labels) {
  if (labels.empty()) return " ";
  std::string text = "{";
  for (const Label& label : labels) AppendLabel(label, &text);
  text.back() = '}';
  return text + " ";
}

// What stands around a bucket's bound, which has its place in the order of labels: {a="1",le=" and
// ",z="2"} and a blank.
struct BucketLabels {
  std::string before = "{";
  std::string after = "\",";
};

BucketLabels BucketLabelsOf(const std::vector<Label>& labels) {
  constexpr std::string_view kBound = "le";
  BucketLabels text;
  for (const Label& label : labels) {
    AppendLabel(label, label.name < kBound ? &text.before : &text.after);
  }
  text.before.append(kBound).append("=\"");
  text.after.back() = '}';
  text.after += ' ';
  return text;
}

void AppendSample(std::string_view name, std::string_view suffix, std::string_view labels,
                  double value, std::string* out) {
  out->append(name).append(suffix).append(labels);
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
  const BucketLabels around = BucketLabelsOf(labels);
  const std::string line = std::string(name) + "_bucket" + around.before;
  const auto append_bucket = [&](double bound, double value) {
    *out += line;
    AppendNumber(bound, out);
    *out += around.after;
    AppendNumber(value, out);
    *out += '\n';
  };
  bool has_infinity = false;
  size_t bucket_idx = 0;
  for (const auto& bucket : histogram.bucket) {
    has_infinity |= std::isinf(bucket.upper_bound);
    append_bucket(bucket.upper_bound, static_cast<double>(bucket.cumulative_count));
    const auto exemplar = exemplars == nullptr ? std::nullopt : exemplars->Read(bucket_idx);
    if (exemplar) AppendExemplar(*exemplar, out);
    ++bucket_idx;
  }
  if (!has_infinity) append_bucket(std::numeric_limits<double>::infinity(), count);
  const std::string plain = LabelsText(labels);
  AppendSample(name, "_count", plain, count, out);
  AppendSample(name, "_sum", plain, histogram.sample_sum, out);
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
        AppendSample(family.name, "", LabelsText(labels), metric->counter.value, out);
        break;
      case MetricType::Gauge:
        AppendSample(family.name, "", LabelsText(labels), metric->gauge.value, out);
        break;
      case MetricType::Histogram:
        AppendHistogram(family.name, labels, metric->histogram,
                        is_open_metrics ? (*find_exemplars)(family, *metric) : nullptr, out);
        break;
      case MetricType::Summary:
        AppendSample(family.name, "_count", LabelsText(labels),
                     static_cast<double>(metric->summary.sample_count), out);
        AppendSample(family.name, "_sum", LabelsText(labels), metric->summary.sample_sum, out);
        break;
      default:
        AppendSample(family.name, "", LabelsText(labels), metric->untyped.value, out);
    }
  }
}

// More than it takes, so that nothing is copied while it grows.
size_t RoomFor(const std::vector<prometheus::MetricFamily>& families) {
  constexpr size_t kLineBytes = 256;
  size_t num_lines = 0;
  for (const auto& family : families) {
    num_lines += 2;
    for (const ClientMetric& metric : family.metric)
      num_lines += metric.histogram.bucket.size() + 3;
  }
  return num_lines * kLineBytes;
}

}  // namespace

std::string MetricNumber(double value) {
  std::string text;
  AppendNumber(value, &text);
  return text;
}

std::string Exposition(const std::vector<prometheus::MetricFamily>& families) {
  std::string text;
  text.reserve(RoomFor(families));
  for (const auto& family : families) {
    if (!family.metric.empty()) AppendFamily(family, nullptr, &text);
  }
  return text;
}

std::string OpenMetricsExposition(const std::vector<prometheus::MetricFamily>& families,
                                  const FindExemplars& find_exemplars) {
  std::string text;
  text.reserve(RoomFor(families));
  for (const auto& family : families) {
    if (!family.metric.empty()) AppendFamily(family, &find_exemplars, &text);
  }
  text += "# EOF\n";
  return text;
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
