#include "deploy/cli/bench/latency_limits.h"

#include <algorithm>

#include "common/strings.h"
#include "deploy/cli/bench/text_table.h"

namespace tandem {
namespace {

constexpr std::string_view kMetrics[] = {"ttft", "tpot", "itl", "e2el"};

std::optional<double> PercentOf(std::string_view statistic) {
  if (!statistic.starts_with('p')) return std::nullopt;
  const std::optional<double> percent = ParseNumber<double>(statistic.substr(1));
  return percent && *percent >= 0 && *percent <= 100 ? percent : std::nullopt;
}

StatusOr<LatencyLimit> ParseLimit(const std::string& item) {
  const std::vector<std::string_view> parts = Split(item, ':');
  const Status error = InvalidArgumentError("--slo is '" + item +
                                            "', must be like e2el:p99:500 or ttft:200: ttft, tpot, "
                                            "itl or e2el, then mean, median or pNN, then ms");
  if (parts.size() != 2 && parts.size() != 3) return error;
  const std::string_view statistic = parts.size() == 3 ? parts[1] : "p99";
  const bool known = statistic == "mean" || statistic == "median" || PercentOf(statistic);
  const std::optional<double> limit = ParseNumber<double>(parts.back());
  const bool known_metric =
      std::find(std::begin(kMetrics), std::end(kMetrics), parts[0]) != std::end(kMetrics);
  if (!known || !known_metric || !limit || !(*limit > 0)) return error;
  return LatencyLimit{std::string(parts[0]), std::string(statistic), *limit};
}

}  // namespace

std::string LatencyLimit::ToString() const {
  std::string ms = Decimal(limit_ms, 3);
  ms.erase(ms.find_last_not_of('0') + 1);
  if (ms.ends_with('.')) ms.pop_back();
  return metric + ":" + statistic + ":" + ms;
}

StatusOr<std::vector<LatencyLimit>> ParseLatencyLimits(const std::vector<std::string>& items) {
  std::vector<LatencyLimit> limits;
  for (const std::string& item : items) {
    ASSIGN_OR_RETURN(LatencyLimit limit, ParseLimit(item));
    limits.push_back(std::move(limit));
  }
  return limits;
}

std::string PercentilesOf(const std::vector<LatencyLimit>& limits) {
  std::string text = "99";
  for (const LatencyLimit& limit : limits) {
    if (!PercentOf(limit.statistic)) continue;
    const std::string percent = limit.statistic.substr(1);
    if ((',' + text + ',').find(',' + percent + ',') == std::string::npos) text += "," + percent;
  }
  return text;
}

std::string BrokenLimits(const std::vector<LatencyLimit>& limits, const BenchFigures& figures) {
  std::string broken;
  const auto add = [&broken](const std::string& what) {
    broken += (broken.empty() ? "" : ", ") + what;
  };
  if (figures.Get("failed") > 0) add(Decimal(figures.Get("failed"), 0) + " requests failed");
  if (figures.Get("completed") <= 0) add("no request succeeded");
  for (const LatencyLimit& limit : limits) {
    const std::optional<double> value = figures.Find(limit.Field());
    if (!value) {
      add("no " + limit.Field());
    } else if (*value > limit.limit_ms) {
      add(limit.statistic + " " + limit.metric + " " + Decimal(*value, 1) + " ms");
    }
  }
  return broken;
}

}  // namespace tandem
