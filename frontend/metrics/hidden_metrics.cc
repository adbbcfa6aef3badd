#include "frontend/metrics/hidden_metrics.h"

#include <prometheus/metric_family.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "common/log.h"
#include "common/strings.h"
#include "common/version.h"

namespace tandem {
namespace {

struct HiddenMetric {
  std::string_view name;
  std::string_view source;  // the family that has the values today
  bool is_always_zero;      // what it counted does not happen; the source gives the labels
};
constexpr HiddenMetric kHidden[] = {
    {"vllm:time_in_queue_requests", "vllm:request_queue_time_seconds", false},
    {"vllm:tokens_total", "vllm:generation_tokens_total", false},
    {"vllm:num_requests_swapped", "vllm:num_requests_running", true},
    {"vllm:cpu_cache_usage_perc", "vllm:kv_cache_usage_perc", true},
};
constexpr std::string_view kPromptTokens = "vllm:prompt_tokens_total";

const prometheus::MetricFamily* Find(const std::vector<prometheus::MetricFamily>& families,
                                     std::string_view name) {
  const auto it = std::ranges::find(families, name, &prometheus::MetricFamily::name);
  return it == families.end() ? nullptr : &*it;
}

// vllm:tokens_total counted prompts too.
void AddPromptTokens(const prometheus::MetricFamily& prompts, prometheus::MetricFamily* tokens) {
  for (prometheus::ClientMetric& metric : tokens->metric) {
    for (const prometheus::ClientMetric& prompt : prompts.metric) {
      if (prompt.label == metric.label) metric.counter.value += prompt.counter.value;
    }
  }
}

std::optional<int64_t> MinorOf(std::string_view version) {
  const std::vector<std::string_view> parts = Split(version, '.');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  for (const std::string_view part : parts) {
    if (!ParseNumber<uint32_t>(part)) return std::nullopt;
  }
  return int64_t{1000} * *ParseNumber<uint32_t>(parts[0]) + *ParseNumber<uint32_t>(parts[1]);
}

}  // namespace

StatusOr<bool> ShowsHiddenMetrics(const std::string& version) {
  if (version.empty()) return false;
  const std::optional<int64_t> minor = MinorOf(version);
  if (!minor) {
    return InvalidArgumentError("--show-hidden-metrics-for-version " + version +
                                ": must be a version such as 0.32");
  }
  return *minor + 1 == *MinorOf(kVllmVersion);
}

void AppendHiddenMetrics(std::vector<prometheus::MetricFamily>* families) {
  std::vector<prometheus::MetricFamily> hidden;
  for (const HiddenMetric& row : kHidden) {
    const prometheus::MetricFamily* source = Find(*families, row.source);
    if (source == nullptr) continue;
    prometheus::MetricFamily family = *source;
    family.name = std::string(row.name);
    family.help =
        "HIDDEN, goes with the next version: " +
        (row.is_always_zero ? "always 0." : "read " + std::string(row.source) + " instead.");
    for (prometheus::ClientMetric& metric : family.metric) {
      if (row.is_always_zero) metric.gauge.value = 0;
    }
    const prometheus::MetricFamily* prompts = Find(*families, kPromptTokens);
    if (row.name == "vllm:tokens_total" && prompts != nullptr) AddPromptTokens(*prompts, &family);
    hidden.push_back(std::move(family));
  }
  std::ranges::move(hidden, std::back_inserter(*families));
}

std::string NamesWithHelp(std::string_view page, std::string_view word) {
  constexpr std::string_view kHelp = "# HELP ";
  std::string names;
  for (std::string_view line : Split(page, '\n')) {
    if (!line.starts_with(kHelp)) continue;
    line.remove_prefix(kHelp.size());
    const size_t end = line.find(' ');
    if (end == line.npos || !line.substr(end + 1).starts_with(word)) continue;
    names += (names.empty() ? "" : ", ") + std::string(line.substr(0, end));
  }
  return names;
}

void LogRetiringNames(std::string_view page) {
  if (const std::string names = NamesWithHelp(page, "DEPRECATED"); !names.empty()) {
    LOG_INFO << "[metrics] deprecated, their HELP names what to read instead "
             << "(--no-deprecated-metrics leaves them out): " << names;
  }
  if (const std::string names = NamesWithHelp(page, "HIDDEN"); !names.empty()) {
    LOG_WARNING << "[metrics] shown for --show-hidden-metrics-for-version, gone with the next "
                << "version: " << names;
  }
}

}  // namespace tandem
