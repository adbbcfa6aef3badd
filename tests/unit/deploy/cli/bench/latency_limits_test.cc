#include "deploy/cli/bench/latency_limits.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("Limits name metric, statistic and milliseconds") {
  const auto limits = *ParseLatencyLimits({"e2el:p99:500", "ttft:200", "itl:median:12.5"});
  REQUIRE(limits.size() == 3);
  CHECK(limits[0].Field() == "p99_e2el_ms");
  CHECK(limits[1].Field() == "p99_ttft_ms");
  CHECK(limits[1].ToString() == "ttft:p99:200");
  CHECK(limits[2].ToString() == "itl:median:12.5");
  CHECK(PercentilesOf(limits) == "99");
  CHECK(PercentilesOf(*ParseLatencyLimits({"ttft:p90:1", "itl:p99.9:1", "tpot:p90:3"})) ==
        "99,90,99.9");
  CHECK(PercentilesOf({}) == "99");
}

TEST_CASE("A malformed limit is refused") {
  for (const char* item : {"e2el", "e2el:p99", "e2el:p101:5", "latency:5", "ttft:max:5", "ttft:0",
                           "ttft:p99:-1", "ttft:p99:5:6", "ttft:px:5"}) {
    CAPTURE(item);
    const auto limits = ParseLatencyLimits({item});
    REQUIRE_FALSE(limits.ok());
    CHECK(limits.status().message().find("--slo is '" + std::string(item) + "'") == 0);
  }
}

TEST_CASE("Broken limits are reported with the measured value") {
  BenchFigures figures;
  figures.numbers = {{"completed", 8}, {"failed", 0}, {"p99_ttft_ms", 150}, {"mean_itl_ms", 20}};
  const auto limits = *ParseLatencyLimits({"ttft:p99:150", "itl:mean:10"});
  CHECK(BrokenLimits(limits, figures) == "mean itl 20.0 ms");
  figures.numbers["mean_itl_ms"] = 10;
  CHECK(BrokenLimits(limits, figures).empty());
  figures.numbers["failed"] = 2;
  CHECK(BrokenLimits(limits, figures) == "2 requests failed");
  figures.numbers = {{"completed", 0}};
  CHECK(BrokenLimits(limits, figures) == "no request succeeded, no p99_ttft_ms, no mean_itl_ms");
}

}  // namespace
}  // namespace tandem
