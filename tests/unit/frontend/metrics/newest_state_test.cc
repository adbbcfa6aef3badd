#include "frontend/metrics/newest_state.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// A gauge that is negative is left out.
wire::RawValue Counted(int64_t count, int64_t gauge) {
  using Kind = wire::ConnectorSeries::Kind;
  wire::KvConnectorStats stats;
  stats.series = {{"count", Kind::kCounter, {}, {static_cast<double>(count)}}};
  if (gauge >= 0) stats.series.push_back({"state", Kind::kGauge, {}, {static_cast<double>(gauge)}});
  return wire::Packed(stats);
}

wire::SchedulerStats Report(int64_t num_waiting, int64_t num_queries) {
  wire::SchedulerStats report;
  report.num_running_reqs = num_waiting + 1;
  report.num_waiting_reqs = num_waiting;
  report.num_skipped_waiting_reqs = num_waiting + 2;
  report.kv_cache_usage = static_cast<double>(num_waiting) / 10;
  report.prefix_cache_stats.queries = num_queries;
  report.kv_connector_stats = Counted(num_queries, num_waiting);
  report.running_lora_adapters = {{std::to_string(num_waiting), 1}};
  report.waiting_lora_adapters = {{"w" + std::to_string(num_waiting), 1}};
  return report;
}

TEST_CASE("a report that is read late has its counts and the state of the newest") {
  NewestState newest;
  wire::SchedulerStats first = Report(5, 100), third = Report(0, 300), second = Report(2, 200);
  newest.Apply(1, &first);
  CHECK(first == Report(5, 100));
  newest.Apply(3, &third);
  CHECK(third == Report(0, 300));
  newest.Apply(2, &second);
  wire::SchedulerStats expected = Report(0, 200);
  expected.kv_connector_stats = Counted(200, -1);
  CHECK(second == expected);
}

TEST_CASE("an engine that is gone runs nothing, its next process counts anew") {
  NewestState newest;
  wire::SchedulerStats running = Report(5, 100);
  newest.Apply(1000, &running);
  newest.End();
  wire::SchedulerStats late = Report(5, 7);
  newest.Apply(1001, &late);
  wire::SchedulerStats nothing;
  nothing.prefix_cache_stats.queries = 7;
  nothing.kv_connector_stats = Counted(7, -1);
  CHECK(late == nothing);
  newest.Begin();
  wire::SchedulerStats again = Report(3, 1);
  newest.Apply(1, &again);  // of a host that started a second ago
  CHECK(again == Report(3, 1));
}

}  // namespace
}  // namespace tandem
