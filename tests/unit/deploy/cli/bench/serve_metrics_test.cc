#include "deploy/cli/bench/serve_metrics.h"

#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

RequestOutcome Good(double start, double ttft, std::vector<double> itl, int64_t output_tokens) {
  RequestOutcome outcome;
  outcome.success = true;
  outcome.prompt_tokens = 10;
  outcome.output_tokens = output_tokens;
  outcome.start = start;
  outcome.ttft = outcome.latency = ttft;
  for (const double gap : itl) outcome.latency += gap;
  outcome.itl = std::move(itl);
  return outcome;
}

RequestOutcome Failed() {
  RequestOutcome outcome;
  outcome.error = "refused";
  outcome.prompt_tokens = 1000;
  outcome.start = 3;
  return outcome;
}

TEST_CASE("Percentile interpolates between neighbours as numpy does") {
  const std::vector<double> values = {1, 2, 3, 4};
  // numpy.percentile([1, 2, 3, 4], p)
  CHECK(Percentile(values, 0) == 1);
  CHECK(Percentile(values, 25) == Approx(1.75));
  CHECK(Percentile(values, 50) == Approx(2.5));
  CHECK(Percentile(values, 90) == Approx(3.7));
  CHECK(Percentile(values, 99) == Approx(3.97));
  CHECK(Percentile(values, 100) == 4);
  CHECK(Percentile(std::vector<double>{7}, 99) == 7);
  CHECK(Percentile(std::vector<double>{}, 50) == 0);
}

TEST_CASE("CalculateMetrics uses successful requests only") {
  const std::vector<RequestOutcome> outcomes = {Good(0, 0.1, {0.2, 0.3}, 3), Failed(),
                                                Good(1, 0.3, {}, 1)};
  const ServeMetrics metrics =
      CalculateMetrics(outcomes, 2, Goodput{}, std::vector<double>{50, 99});
  CHECK(metrics.completed == 2);
  CHECK(metrics.failed == 1);
  CHECK(metrics.total_input_tokens == 20);
  CHECK(metrics.total_output_tokens == 4);
  CHECK(metrics.request_throughput == Approx(1));
  CHECK_FALSE(metrics.request_goodput);
  CHECK(metrics.output_throughput == Approx(2));
  CHECK(metrics.total_token_throughput == Approx(12));
  CHECK(metrics.ttft.mean_ms == Approx(200));
  CHECK(metrics.ttft.std_ms == Approx(100));
  // A request of one token has no time per later token.
  CHECK(metrics.tpot.mean_ms == Approx(250));
  CHECK(metrics.tpot.std_ms == Approx(0).margin(1e-9));
  CHECK(metrics.itl.median_ms == Approx(250));
  CHECK(metrics.e2el.mean_ms == Approx(450));
  REQUIRE(metrics.ttft.percentiles.size() == 2);
  CHECK(metrics.ttft.percentiles[1].first == 99);
  CHECK(metrics.ttft.percentiles[1].second == Approx(298));
}

TEST_CASE("CalculateMetrics finds the busiest second") {
  // Chunks at 0.5, 0.9, 1.2 and 1.3 of the first request, at 1.5 and 2.5 of the second.
  const std::vector<RequestOutcome> outcomes = {Good(100, 0.5, {0.4, 0.3, 0.1}, 4),
                                                Good(101, 0.5, {1.0}, 2)};
  const ServeMetrics metrics = CalculateMetrics(outcomes, 3, Goodput{}, std::vector<double>{});
  CHECK(metrics.max_output_tokens_per_s == 3);
  CHECK(metrics.max_concurrent_requests == 2);
}

TEST_CASE("CalculateMetrics counts a request as good when it keeps every limit") {
  const std::vector<RequestOutcome> outcomes = {
      Good(0, 0.1, {0.1, 0.1}, 3),  // TTFT 100, TPOT 100, E2EL 300
      Good(0, 0.2, {0.05}, 2),      // TTFT 200, TPOT 50, E2EL 250
      Good(0, 0.1, {}, 1),          // TTFT 100, TPOT 0, E2EL 100
      Failed(),
  };
  const auto goodput = [&](Goodput limits) {
    return CalculateMetrics(outcomes, 1, limits, std::vector<double>{}).request_goodput;
  };
  CHECK(*goodput({.ttft_ms = 150, .tpot_ms = {}, .e2el_ms = {}}) == 2);
  CHECK(*goodput({.ttft_ms = {}, .tpot_ms = 60, .e2el_ms = {}}) == 2);
  CHECK(*goodput({.ttft_ms = 150, .tpot_ms = 60, .e2el_ms = {}}) == 1);
  CHECK(*goodput({.ttft_ms = {}, .tpot_ms = {}, .e2el_ms = 300.001}) == 3);
  CHECK(*goodput({.ttft_ms = 1, .tpot_ms = {}, .e2el_ms = {}}) == 0);
}

TEST_CASE("CalculateMetrics of failures alone is all zeros") {
  const ServeMetrics metrics = CalculateMetrics(std::vector<RequestOutcome>{Failed()}, 0, Goodput{},
                                                std::vector<double>{99});
  CHECK(metrics.completed == 0);
  CHECK(metrics.request_throughput == 0);
  CHECK(metrics.ttft.percentiles == std::vector<std::pair<double, double>>{{99, 0}});
}

}  // namespace
}  // namespace tandem
