#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "deploy/cli/bench/bench_latency.h"
#include "deploy/cli/bench/bench_serve.h"
#include "deploy/cli/bench/bench_throughput.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

std::string Golden(const std::string& name) {
  std::ifstream file(std::string(TANDEM_GOLDEN_DIR) + "/bench/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

BenchServeOptions AllOptions() {
  BenchServeOptions options;
  options.model = "/models/small";
  options.num_prompts = 3;
  options.request_rate = 4;
  options.max_concurrency = 2;
  options.goodput = {"ttft:150", "e2el:1000"};
  options.percentile_metrics = "ttft,tpot,itl,e2el,client_queue_time,e2el_including_client_queue";
  options.metric_percentiles = "50,99,99.9";
  options.metadata = {"commit=abc", "note=a=b"};
  return options;
}

BenchServeResult Result(const BenchServeOptions& options) {
  BenchServeResult result;
  result.model_id = options.model;
  result.tokenizer_id = options.model;
  result.started_at = 1.7e9;
  result.client_cpu_s = 0.25;
  for (int i = 0; i < 2; ++i) {
    RequestOutcome outcome;
    outcome.success = true;
    outcome.prompt_tokens = 7;
    outcome.output_tokens = 3;
    outcome.start = 10 + 0.25 * i;
    outcome.queue_time = 0.125 * i;
    outcome.ttft = 0.125 + 0.125 * i;
    outcome.itl = {0.25, 0.5};
    outcome.latency = outcome.ttft + 0.75;
    outcome.text = "text";
    result.outcomes.push_back(outcome);
  }
  RequestOutcome failed;
  failed.error = "cannot connect: Connection refused";
  failed.start = 10.5;
  result.outcomes.push_back(failed);
  result.metrics = CalculateMetrics(result.outcomes, 2, *ParseGoodput(options.goodput),
                                    *ParsePercentiles(options.metric_percentiles));
  return result;
}

TEST_CASE("BenchServeReport prints vLLM's report") {
  const BenchServeOptions options = AllOptions();
  CHECK(BenchServeReport(options, Result(options)) == Golden("report.txt"));
}

TEST_CASE("BenchServeReport omits rows that were not requested or make no sense") {
  BenchServeOptions options;
  options.percentile_metrics = "tpot,client_queue_time,e2el_including_client_queue";
  const std::string text = BenchServeReport(options, Result(options));
  for (const char* absent : {"Request rate", "Maximum request concurrency", "goodput", "TTFT",
                             "Client-side", "Queue-inclusive"}) {
    CAPTURE(absent);
    CHECK(text.find(absent) == text.npos);
  }
  CHECK(text.find("P99 TPOT (ms):") != text.npos);
}

TEST_CASE("BenchServeJson has vLLM's fields in vLLM's order") {
  const BenchServeOptions options = AllOptions();
  Json json = Json::parse(BenchServeJson(options, Result(options)));
  CHECK(json["date"].get<std::string>().size() == 15);
  json["date"] = "";  // in the zone of the machine
  Json golden = Json::parse(Golden("result.json"));
  REQUIRE(json.size() == golden.size());
  for (auto ours = json.begin(), theirs = golden.begin(); ours != json.end(); ++ours, ++theirs) {
    CAPTURE(ours.key());
    CHECK(ours.key() == theirs.key());
    if (theirs->is_number_float()) {
      CHECK(ours->get<double>() == Approx(theirs->get<double>()));
    } else {
      CHECK(*ours == *theirs);
    }
  }
}

TEST_CASE("BenchServeJson has single requests only with --save-detailed") {
  BenchServeOptions options;
  const std::vector<std::string> arrays = {"input_lens", "output_lens",     "start_times", "ttfts",
                                           "itls",       "generated_texts", "errors"};
  const Json brief = Json::parse(BenchServeJson(options, Result(options)));
  for (const std::string& name : arrays) CHECK_FALSE(brief.contains(name));
  CHECK(brief["latencies"].size() == 3);
  CHECK(brief["queue_times"].size() == 3);
  CHECK(brief["request_rate"] == "inf");
  CHECK(brief["max_concurrency"].is_null());
  CHECK(brief["request_goodput"].is_null());

  options.save_detailed = true;
  const Json detailed = Json::parse(BenchServeJson(options, Result(options)));
  for (const std::string& name : arrays) CHECK(detailed[name].size() == 3);
  CHECK(detailed["errors"][2] == "cannot connect: Connection refused");
  CHECK(detailed["itls"][0] == std::vector<double>{0.25, 0.5});
}

TEST_CASE("BenchServeFileName names the run") {
  BenchServeOptions options = AllOptions();
  const auto name = [&] { return BenchServeFileName(options, Result(options)); };
  CHECK(name().starts_with("openai-4.0qps-concurrency2-small-202"));
  CHECK(name().ends_with(".json"));
  options = {};
  options.label = "mine";
  options.model = "org/model/";
  CHECK(name().starts_with("mine-infqps-model-"));
  options.result_filename = "x.json";
  CHECK(name() == "x.json");
}

TEST_CASE("LatencyReport and ThroughputReport print vLLM's lines") {
  const std::vector<double> latencies = {0.5, 0.25, 1.0};
  CHECK(LatencyReport(latencies) ==
        "Avg latency: 0.5833333333333334 seconds\n10% percentile latency: 0.3 seconds\n"
        "25% percentile latency: 0.375 seconds\n50% percentile latency: 0.5 seconds\n"
        "75% percentile latency: 0.75 seconds\n90% percentile latency: 0.9 seconds\n"
        "99% percentile latency: 0.99 seconds\n");
  const Json latency = Json::parse(LatencyJson("m", latencies));
  CHECK(latency["model_id"] == "m");
  CHECK(latency["latencies"] == latencies);
  CHECK(latency["percentiles"]["90"] == Approx(0.9));

  const ThroughputResult result{"m", 2, 4, 100, 50};
  CHECK(ThroughputReport(result) ==
        "Throughput: 2.00 requests/s, 75.00 total tokens/s, 25.00 output tokens/s\n"
        "Total num prompt tokens:  100\nTotal num output tokens:  50\n");
  CHECK(Json::parse(ThroughputJson(result)) == Json({{"model_id", "m"},
                                                     {"elapsed_time", 2.0},
                                                     {"num_requests", 4},
                                                     {"total_num_tokens", 150},
                                                     {"requests_per_second", 2.0},
                                                     {"tokens_per_second", 75.0}}));
}

}  // namespace
}  // namespace tandem
