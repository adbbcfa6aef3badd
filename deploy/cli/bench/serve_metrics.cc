#include "deploy/cli/bench/serve_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem {
namespace {

constexpr double kMsPerSecond = 1000;

Distribution Describe(std::vector<double> seconds, std::span<const double> percents) {
  Distribution result;
  std::sort(seconds.begin(), seconds.end());
  if (!seconds.empty()) {
    const auto count = static_cast<double>(seconds.size());
    const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / count;
    double squares = 0;
    for (const double value : seconds) squares += (value - mean) * (value - mean);
    result.mean_ms = kMsPerSecond * mean;
    result.std_ms = kMsPerSecond * std::sqrt(squares / count);
    result.median_ms = kMsPerSecond * Percentile(seconds, 50);
  }
  for (const double percent : percents) {
    result.percentiles.emplace_back(percent, kMsPerSecond * Percentile(seconds, percent));
  }
  return result;
}

double TimePerOutputToken(const RequestOutcome& outcome) {
  if (outcome.output_tokens < 2) return 0;
  return (outcome.latency - outcome.ttft) / static_cast<double>(outcome.output_tokens - 1);
}

bool IsGood(const RequestOutcome& outcome, const Goodput& goodput) {
  const auto within = [](std::optional<double> limit_ms, double seconds) {
    return !limit_ms || seconds * kMsPerSecond <= *limit_ms;
  };
  return within(goodput.ttft_ms, outcome.ttft) &&
         within(goodput.tpot_ms, TimePerOutputToken(outcome)) &&
         within(goodput.e2el_ms, outcome.latency);
}

// The busiest second since the first start: chunks that arrived, requests that were alive in it.
void FindPeaks(std::span<const RequestOutcome> outcomes, ServeMetrics* metrics) {
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (const RequestOutcome& outcome : outcomes) {
    if (!outcome.success) continue;
    first = std::min(first, outcome.start);
    last = std::max(last, outcome.start + outcome.latency);
  }
  if (metrics->completed == 0) return;
  const auto num_seconds = static_cast<size_t>(std::ceil(last - first)) + 1;
  std::vector<int64_t> chunks(num_seconds), alive(num_seconds);
  const auto second_of = [&](double time) {
    return std::min(static_cast<size_t>(time - first), num_seconds - 1);
  };
  for (const RequestOutcome& outcome : outcomes) {
    if (!outcome.success) continue;
    double time = outcome.start + outcome.ttft;
    ++chunks[second_of(time)];
    for (const double gap : outcome.itl) ++chunks[second_of(time += gap)];
    const size_t end = second_of(outcome.start + outcome.latency);
    for (size_t second = second_of(outcome.start); second <= end; ++second) ++alive[second];
  }
  metrics->max_output_tokens_per_s =
      static_cast<double>(*std::max_element(chunks.begin(), chunks.end()));
  metrics->max_concurrent_requests = *std::max_element(alive.begin(), alive.end());
}

}  // namespace

double Percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

ServeMetrics CalculateMetrics(std::span<const RequestOutcome> outcomes, double duration,
                              const Goodput& goodput, std::span<const double> percentiles) {
  ServeMetrics metrics;
  metrics.duration = duration;
  std::vector<double> ttft, tpot, itl, e2el, queue, e2el_and_queue;
  int64_t num_good = 0;
  for (const RequestOutcome& outcome : outcomes) {
    if (!outcome.success) {
      ++metrics.failed;
      continue;
    }
    ++metrics.completed;
    metrics.total_input_tokens += outcome.prompt_tokens;
    metrics.total_output_tokens += outcome.output_tokens;
    metrics.total_inputs += outcome.num_results;
    ttft.push_back(outcome.ttft);
    if (outcome.output_tokens > 1) tpot.push_back(TimePerOutputToken(outcome));
    itl.insert(itl.end(), outcome.itl.begin(), outcome.itl.end());
    e2el.push_back(outcome.latency);
    queue.push_back(outcome.queue_time);
    e2el_and_queue.push_back(outcome.latency + outcome.queue_time);
    num_good += IsGood(outcome, goodput) ? 1 : 0;
  }

  const auto per_second = [&](int64_t count) {
    return duration > 0 ? static_cast<double>(count) / duration : 0;
  };
  metrics.request_throughput = per_second(metrics.completed);
  if (goodput.any()) metrics.request_goodput = per_second(num_good);
  metrics.input_throughput = per_second(metrics.total_inputs);
  metrics.output_throughput = per_second(metrics.total_output_tokens);
  metrics.total_token_throughput =
      per_second(metrics.total_input_tokens + metrics.total_output_tokens);
  FindPeaks(outcomes, &metrics);
  metrics.ttft = Describe(std::move(ttft), percentiles);
  metrics.tpot = Describe(std::move(tpot), percentiles);
  metrics.itl = Describe(std::move(itl), percentiles);
  metrics.e2el = Describe(std::move(e2el), percentiles);
  metrics.client_queue_time = Describe(std::move(queue), percentiles);
  metrics.e2el_including_client_queue = Describe(std::move(e2el_and_queue), percentiles);
  return metrics;
}

}  // namespace tandem
