#include "deploy/cli/top/server_state.h"

#include <limits>
#include <string>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("server_state: the state of a server is read") {
  const StatusOr<DashboardState> state = ParseDashboardState(R"({
    "version": "0.1", "model": "m", "uptime_s": 12.5, "is_draining": true, "num_requests": 7,
    "engines": [{"index": 1, "ready": true, "status": "ready", "kv_cache_usage": 0.25,
                 "kv_blocks": 10, "block_size": 16, "running": 3, "waiting": 2}],
    "requests": [{"id": "a", "phase": "decoding", "ttft_s": 0.5, "output_tokens": 4},
                 {"id": "b", "phase": "waiting", "ttft_s": null}]})");
  REQUIRE(state.ok());
  CHECK(state->model == "m");
  CHECK(state->is_draining);
  CHECK(state->num_requests == 7);
  REQUIRE(state->engines.size() == 1);
  CHECK(state->engines[0].ready);
  CHECK(state->engines[0].kv_cache_usage == 0.25);
  CHECK(state->engines[0].waiting == 2);
  REQUIRE(state->requests.size() == 2);
  CHECK(state->requests[0].ttft_s == 0.5);
  CHECK_FALSE(state->requests[1].ttft_s);
}

TEST_CASE("server_state: what is no state is refused, what is of another type is left out") {
  for (const char* text : {"", "{", "[]", "null", "7", "{}", R"({"engines": []})",
                           R"({"engines": {}, "requests": []})", "<html>"}) {
    INFO(text);
    CHECK(ParseDashboardState(text).status().code() == StatusCode::kUnavailable);
  }
  const StatusOr<DashboardState> odd = ParseDashboardState(
      R"({"model": 7, "uptime_s": "x", "num_requests": 1e300,
          "engines": [null, 3, {"index": "a", "ready": 1, "running": {}}], "requests": [[]]})");
  REQUIRE(odd.ok());
  CHECK(odd->model.empty());
  CHECK(odd->uptime_s == 0);
  CHECK(odd->num_requests > 0);
  CHECK(odd->engines.size() == 3);
  CHECK_FALSE(odd->engines[2].ready);
  CHECK(odd->requests.size() == 1);
}

TEST_CASE("server_state: series are summed over their labels, histograms by bound") {
  const MetricsSample sample = ParseMetrics(
      "# HELP x y\n# TYPE x counter\nx_total{engine=\"0\"} 3\nx_total{engine=\"1\"} 4.5\nplain 2\n"
      "h_bucket{engine=\"0\",le=\"0.5\"} 1\nh_bucket{engine=\"0\",le=\"+Inf\"} 2\n"
      "h_bucket{le=\"0.5\",engine=\"1\"} 10\nh_bucket{role=\"9\",engine=\"1\",le=\"+Inf\"} 20\n"
      "odd{text=\"} 9 {,le=\\\"3\"} 1 # {trace=\"x\"} 5\nnan NaN\nbroken{ 3\nno_value\n\n",
      42);
  CHECK(sample.time == 42);
  CHECK(sample.Sum("x_total") == 7.5);
  CHECK(sample.Sum("plain") == 2);
  CHECK(sample.Sum("nan") == 0);
  CHECK(sample.Sum("absent") == 0);
  const auto& buckets = sample.buckets.at("h");
  CHECK(buckets.size() == 2);
  CHECK(buckets.at(0.5) == 11);
  CHECK(buckets.at(std::numeric_limits<double>::infinity()) == 22);
}

}  // namespace
}  // namespace tandem
