#include "frontend/metrics/counts.h"

#include "common/strings.h"
#include "frontend/metrics/metrics.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Options = MetricsOptions;

std::unique_ptr<Metrics> MakeMetrics(Options options = {.model_name = "m", .num_engines = 2}) {
  return std::make_unique<Metrics>(std::move(options));
}

HttpSample Sample(std::string_view handler) {
  return {.handler = handler,
          .method = "POST",
          .status = 200,
          .request_bytes = 100,
          .response_bytes = 50,
          .duration_s = 0.2};
}

// Something of each kind of series.
void CountSome(Metrics* metrics) {
  metrics->engine(1).generation_tokens.Increment(7);
  metrics->engine(1).prefix_cache_hits.Increment(3);  // has an older name
  metrics->engine(1).request_success[FinishedReason::kLength].Increment();
  metrics->engine(1).time_to_first_token.Observe(0.3);
  metrics->engine(1).time_to_first_token.Observe(1e9);
  metrics->frontend().requests_moved.Increment(2);
  metrics->Record(Sample("/v1/completions"));
}

// The lines of counters, summaries and histograms that are not 0.
std::map<std::string, std::string> CountedLines(const Metrics& metrics) {
  std::map<std::string, std::string> lines;
  std::string type;
  const std::string page = metrics.Scrape();
  for (const std::string_view line : Split(page, '\n')) {
    const size_t space = line.rfind(' ');
    if (line.starts_with("# TYPE")) type = line.substr(space + 1);
    if (line.empty() || line.starts_with("#") || type == "gauge") continue;
    if (line.starts_with("process_") || line.substr(space + 1) == "0.0") continue;
    lines.emplace(line.substr(0, space), line.substr(space + 1));
  }
  return lines;
}

TEST_CASE("counts: the next page begins where the one before ended") {
  const auto first = MakeMetrics(), next = MakeMetrics();
  CountSome(first.get());
  first->engine(0).num_requests_running.Set(5);
  first->engine(0).engine_restarts.Increment();
  const auto before = CountedLines(*first);
  REQUIRE(before.at("vllm:generation_tokens_total{engine=\"1\",model_name=\"m\"}") == "7.0");
  REQUIRE(next->AddCounts(first->HandOverCounts()).ok());
  CHECK(CountedLines(*next) == before);
  CHECK(next->engine(0).num_requests_running.Value() == 0);
  SECTION("and goes on") {
    CountSome(next.get());
    CHECK(next->engine(1).generation_tokens.Value() == 14);
    CHECK(CountedLines(*next).at("http_request_size_bytes_sum{handler=\"/v1/completions\"}") ==
          "200.0");
  }
}

TEST_CASE("counts: what a frontend counts later is handed over once, and not shown by it") {
  const auto first = MakeMetrics(), next = MakeMetrics();
  CountSome(first.get());
  REQUIRE(next->AddCounts(first->HandOverCounts()).ok());
  const std::string page = first->Scrape(), open_page = first->Scrape(MetricsFormat::kOpenMetrics);
  CHECK(first->HandOverCounts().empty());
  CountSome(first.get());
  CHECK(first->Scrape() == page);
  CHECK(first->Scrape(MetricsFormat::kOpenMetrics) == open_page);
  REQUIRE(next->AddCounts(first->HandOverCounts()).ok());
  CHECK(next->engine(1).generation_tokens.Value() == 14);
  CHECK(first->HandOverCounts().empty());
  SECTION("but not what happened to an engine, which the next one counts too") {
    first->engine(0).engine_restarts.Increment();
    first->engine(0).engine_swaps.Increment();
    first->RecordProcess(0, {.cpu_s = 9});
    CHECK(first->HandOverCounts().empty());
  }
}

TEST_CASE("counts: the CPU time of an engine's processes goes on") {
  const auto first = MakeMetrics(), next = MakeMetrics();
  first->RecordProcess(0, {.cpu_s = 9});
  first->RecordProcess(0, {.cpu_s = 2});  // another process
  REQUIRE(next->AddCounts(first->HandOverCounts()).ok());
  CHECK(next->engine(0).process_cpu_seconds.Value() == 11);
  next->RecordProcess(0, {.cpu_s = 3});
  CHECK(next->engine(0).process_cpu_seconds.Value() == 12);
  CHECK(next->Scrape().find("seconds_before") == std::string::npos);
}

TEST_CASE("counts: series of other models, other engines and other buckets are left out") {
  const auto first = MakeMetrics();
  CountSome(first.get());
  const std::string counts = first->HandOverCounts();
  const auto renamed = MakeMetrics({.model_name = "other", .num_engines = 2});
  REQUIRE(renamed->AddCounts(counts).ok());
  CHECK(renamed->Scrape().find("model_name=\"m\"") == std::string::npos);
  auto of_no_model = CountedLines(*first);
  std::erase_if(of_no_model, [](const auto& line) {
    return line.first.find("model_name") != std::string::npos;
  });
  CHECK(of_no_model.size() > 20);
  CHECK(CountedLines(*renamed) == of_no_model);
  const auto single = MakeMetrics({.model_name = "m", .num_engines = 1});
  REQUIRE(single->AddCounts(counts).ok());
  CHECK(single->Scrape().find("engine=\"1\"") == std::string::npos);
  CHECK(single->frontend().requests_moved.Value() == 2);
  Options coarse = {.model_name = "m", .num_engines = 2};
  coarse.buckets = *BucketFamilies::Parse(R"({"time_to_first_token": [1, 2]})");
  const auto other = MakeMetrics(std::move(coarse));
  REQUIRE(other->AddCounts(counts).ok());
  CHECK_FALSE(CountedLines(*other).contains(
      "vllm:time_to_first_token_seconds_count{engine=\"1\",model_name=\"m\"}"));
  CHECK(other->engine(1).generation_tokens.Value() == 7);
}

TEST_CASE("counts: a text that is none changes nothing") {
  const auto metrics = MakeMetrics();
  const auto before = CountedLines(*metrics);
  const auto with = [](const std::string& more) {
    return R"([{"name": "vllm:generation_tokens_total", "labels": {}, "help": "", )" + more + "}]";
  };
  for (const std::string& text : {std::string("x"), std::string("[1]"), std::string("{}"),
                                  with(R"("sum": "a", "bounds": [], "in_buckets": [])"),
                                  with(R"("sum": -1, "bounds": [], "in_buckets": [])"),
                                  with(R"("sum": 1, "bounds": [1], "in_buckets": [])"),
                                  with(R"("sum": 1, "bounds": [1], "in_buckets": [1])"),
                                  with(R"("sum": 1, "bounds": [2, 1], "in_buckets": [1, 1, 1])"),
                                  with(R"("sum": 1, "bounds": [1], "in_buckets": [1, -1])")}) {
    CAPTURE(text);
    CHECK_FALSE(metrics->AddCounts(text).ok());
    CHECK(CountedLines(*metrics) == before);
  }
  // Of a kind that the name has not here.
  CHECK(metrics->AddCounts(with(R"("sum": 1, "bounds": [1], "in_buckets": [1, 1])")).ok());
  CHECK(CountedLines(*metrics) == before);
  CHECK(metrics->AddCounts("").ok());
}

}  // namespace
}  // namespace tandem
