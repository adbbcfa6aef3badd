// The engines that vLLM 0.33.0's client chooses (golden/dp_coordinator/lb_choices.jsonl.gz): counts
// arrive, requests come and end, some name their rank.

#include <map>

#include "frontend/engine_client/engine_balancer.h"
#include "tests/support/gzip/gzip_lines.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

void Replay(const nlohmann::json& trace) {
  const int num_engines = trace["engines"];
  EngineHealth health(num_engines, {});
  for (int i = 0; i < num_engines; ++i) health.OnReady(i, {});
  EngineBalancer balancer(num_engines, trace["client_count"], trace["client_index"]);
  std::vector<int64_t> num_inflight(static_cast<size_t>(num_engines));
  std::map<std::string, int> engine_of;
  for (const auto& op : trace["ops"]) {
    CAPTURE(op.dump());
    if (op[0] == "counts") {
      for (int i = 0; i < num_engines; ++i) {
        const auto& counts = op[1][static_cast<size_t>(i)];
        wire::SchedulerStats stats;
        stats.num_waiting_reqs = counts[0];
        stats.num_running_reqs = counts[1];
        stats.kv_cache_usage = counts[2];
        balancer.OnStats(i, stats);
      }
    } else if (op[0] == "request") {
      const auto rank = op[2].is_null() ? std::nullopt : std::optional<int>(op[2].get<int>());
      const StatusOr<int> chosen = balancer.Choose({.rank = rank}, health, num_inflight);
      REQUIRE(chosen.ok());
      REQUIRE(*chosen == op[3].get<int>());
      balancer.OnSubmit(*chosen, rank);
      ++num_inflight[static_cast<size_t>(*chosen)];
      engine_of[op[1]] = *chosen;
    } else {
      REQUIRE(op[0] == "finished");
      --num_inflight[static_cast<size_t>(engine_of.at(op[1]))];
    }
  }
}

TEST_CASE("golden: requests go to the engines that vLLM's client chooses") {
  const auto traces = ReadGzipLines(TANDEM_GOLDEN_DIR "/dp_coordinator/lb_choices.jsonl.gz");
  CHECK(traces.size() == 24);
  for (const auto& trace : traces) {
    CAPTURE(trace["name"].get<std::string>());
    Replay(trace);
  }
}

}  // namespace
}  // namespace tandem
