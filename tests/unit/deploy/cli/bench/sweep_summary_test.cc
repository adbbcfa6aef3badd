#include "deploy/cli/bench/sweep_summary.h"

#include <catch2/catch.hpp>

#include "deploy/cli/bench/text_table.h"

namespace tandem {
namespace {

BenchFigures Figures(double load, double tokens) {
  return *ParseBenchFigures(
      "{\"completed\": 4, \"failed\": 0, \"max_concurrency\": " + Decimal(load, 0) +
      ", \"request_rate\": \"inf\", " + "\"output_throughput\": " + Decimal(tokens, 1) +
      ", \"median_ttft_ms\": 5, \"backend\": \"openai\"}");
}

struct Fixture {
  std::vector<ParameterSet> serve = *ParseParameterSets(R"([{"seqs": 8}, {"seqs": 16}])");
  std::vector<ParameterSet> bench =
      *ParseParameterSets(R"([{"max-concurrency": 1}, {"max-concurrency": 4}])");
  std::vector<SweepRun> runs = {
      {&serve[0], &bench[0], 1, "a.json", "", Figures(1, 100)},
      {&serve[0], &bench[0], 2, "b.json", "", Figures(1, 140)},
      {&serve[0], &bench[0], 3, "c.json", "", Figures(1, 110)},
      {&serve[0], &bench[1], 1, "d.json", "it died, \"why\"", {}},
      {&serve[1], &bench[1], 1, "e.json", "", Figures(4, 300)},
  };
};

TEST_CASE("The table has the medians of each pair") {
  const Fixture f;
  CHECK(
      SweepTable(f.runs) ==
      "seqs  max-concurrency  runs  ok  failed  req/s  tok/s  TTFT  TTFT p99  TPOT  ITL  ITL p99\n"
      "   8                1     3   4       0         110.0  5.00\n"
      "   8                4     0\n"
      "  16                4     1   4       0         300.0  5.00\n");
}

TEST_CASE("CSV and JSON have every run, also those that failed") {
  const Fixture f;
  const std::string csv = SweepCsv(f.runs);
  CHECK(csv.find("seqs,max-concurrency,run,completed,failed,") == 0);
  CHECK(csv.find("8,4,1,,,,,,,,,,\"it died, \"\"why\"\"\"\r\n") != csv.npos);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 6);
  const std::string json = SweepJson(f.runs);
  CHECK(json.find("\"error\": \"it died, \\\"why\\\"\"") != json.npos);
  CHECK(json.find("\"label\": \"seqs=16\"") != json.npos);
}

TEST_CASE("A sweep is plotted by server against the load, medians of equal loads") {
  const Fixture f;
  const Chart chart = *LoadChart("t", SweepPlotRuns(f.runs));
  REQUIRE(chart.panels.size() == 3);
  CHECK(chart.panels[0].x_label == "requests at once");
  const ChartPanel& throughput = chart.panels[2];
  REQUIRE(throughput.lines.size() == 2);
  CHECK(throughput.lines[0].name == "seqs=8");
  CHECK(throughput.lines[0].points == std::vector<std::pair<double, double>>{{1, 110}});
  CHECK(throughput.lines[1].points == std::vector<std::pair<double, double>>{{4, 300}});
}

TEST_CASE("Plots take the request rate where all runs have one, and need a load") {
  const BenchFigures rate = *ParseBenchFigures(R"({"completed": 1, "request_rate": 2.5,
      "max_concurrency": null, "median_ttft_ms": 3, "p99_ttft_ms": 9})");
  const Chart chart = *LoadChart("t", {{"s", rate}});
  CHECK(chart.panels[0].x_label == "request rate (1/s)");
  REQUIRE(chart.panels[0].lines.size() == 2);
  CHECK_FALSE(chart.panels[0].lines[0].dashed);
  CHECK(chart.panels[0].lines[1].dashed);
  CHECK(chart.footnote == "Latencies: median, dashed 99th percentile.");
  const BenchFigures none = *ParseBenchFigures(R"({"completed": 1, "request_rate": "inf"})");
  CHECK_FALSE(LoadChart("t", {{"s", none}}).ok());
  CHECK_FALSE(LoadChart("t", {{"s", rate}, {"s", none}}).ok());
  CHECK_FALSE(LoadChart("t", {}).ok());
}

TEST_CASE("Text that is not a bench result is refused") {
  for (const char* text : {"", "[]", "{}", "{\"completed\"", "null"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseBenchFigures(text).ok());
  }
}

}  // namespace
}  // namespace tandem
