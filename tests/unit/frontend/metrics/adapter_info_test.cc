// vllm:lora_requests_info as a scrape shows it.

#include "frontend/metrics/adapter_info.h"

#include "exposition_parser.h"
#include "frontend/metrics/metrics.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

wire::SchedulerStats Report(wire::CountsByName running, wire::CountsByName waiting) {
  wire::SchedulerStats stats;
  stats.running_lora_adapters = std::move(running);
  stats.waiting_lora_adapters = std::move(waiting);
  return stats;
}

// "max_lora|running|waiting value" of each series, in their order.
std::vector<std::string> Shown(const Metrics& metrics) {
  ExpositionParser parser;
  REQUIRE(parser.Parse(metrics.Scrape()).empty());
  std::vector<std::string> series;
  const auto family = parser.families().find("vllm:lora_requests_info");
  if (family == parser.families().end()) return series;
  CHECK(family->second.type == "gauge");
  for (const ParsedSample& sample : family->second.samples) {
    REQUIRE(sample.labels.size() == 3);
    CHECK(sample.labels[0].first == "max_lora");
    CHECK(sample.labels[1].first == "running_lora_adapters");
    CHECK(sample.labels[2].first == "waiting_lora_adapters");
    series.push_back(sample.labels[0].second + "|" + sample.labels[1].second + "|" +
                     sample.labels[2].second + " " +
                     std::to_string(static_cast<int64_t>(sample.value)));
  }
  return series;
}

using Series = std::vector<std::string>;

TEST_CASE("lora_requests_info: there is none without adapters") {
  Metrics metrics({.model_name = "m"});
  metrics.adapter_info().Record(0, Report({}, {}), 1000);
  CHECK(Shown(metrics).empty());
  metrics.adapter_info().SetMaxLoras(0, 0, 1001);
  CHECK(Shown(metrics).empty());
}

TEST_CASE("lora_requests_info: it can be there without adapters, and is one series with them") {
  Metrics metrics({.model_name = "m"});
  AdapterInfo& info = metrics.adapter_info();
  info.ShowAlways(1000);
  CHECK(Shown(metrics) == Series{"0|| 1000"});
  info.SetMaxLoras(0, 0, 1001);
  info.Record(0, Report({}, {}), 1002);
  CHECK(Shown(metrics) == Series{"0|| 1002"});
  info.SetMaxLoras(0, 4, 1003);
  CHECK(Shown(metrics) == Series{"4|| 1003"});
}

TEST_CASE("lora_requests_info: one series, with who runs, who waits, and when it was reported") {
  Metrics metrics({.model_name = "m"});
  AdapterInfo& info = metrics.adapter_info();
  info.SetMaxLoras(0, 4, 1000);
  CHECK(Shown(metrics) == Series{"4|| 1000"});
  info.Record(0, Report({{"a", 2}, {"b", 1}}, {{"b", 3}}), 1001);
  CHECK(Shown(metrics) == Series{"4|a,b|b 1001"});
  info.Record(0, Report({{"a", 1}, {"b", 1}}, {{"b", 1}}), 1002);
  CHECK(Shown(metrics) == Series{"4|a,b|b 1002"});
  info.Record(0, Report({{"b", 1}}, {}), 1003);
  CHECK(Shown(metrics) == Series{"4|b| 1003"});
  info.Record(0, Report({}, {}), 1004);
  CHECK(Shown(metrics) == Series{"4|| 1004"});
}

TEST_CASE("lora_requests_info: engines are shown together, each adapter once") {
  Metrics metrics({.model_name = "m", .num_engines = 2});
  AdapterInfo& info = metrics.adapter_info();
  info.SetMaxLoras(0, 2, 1000);
  info.SetMaxLoras(1, 3, 1000);
  info.Record(1, Report({{"b", 1}, {"a", 1}}, {}), 1001);
  info.Record(0, Report({{"a", 1}}, {{"c", 1}}), 1002);
  CHECK(Shown(metrics) == Series{"3|a,b|c 1002"});
}

TEST_CASE("lora_requests_info: a name with odd characters is escaped") {
  Metrics metrics({.model_name = "m"});
  metrics.adapter_info().SetMaxLoras(0, 1, 1000);
  metrics.adapter_info().Record(0, Report({{"a\"\\\n", 1}}, {}), 1001);
  CHECK(Shown(metrics).size() == 1);
}

}  // namespace
}  // namespace tandem
