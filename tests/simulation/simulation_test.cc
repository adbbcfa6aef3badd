// Thousands of seeded runs. SIM_SEED=n replays one, SIM_RUNS=n sets their number, SIM_FIRST=n where
// they start.

#include "tests/simulation/simulation.h"

#include <cstdlib>

#include "common/log.h"
#include "tests/support/environment.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("Simulation: seeds that found something") {
  REQUIRE(InitLog("simulation", "ERROR").ok());
  const uint64_t seeds[] = {
      // Equals under priority scheduling preempted each other for ever.
      10004685,
      // Idle steps in a row, each of them right: the end of a load is reported two steps late, its
      // request is aborted before it runs, its blocks are kept, and their release is reported late.
      100189504,
      101541716,
      141082920,
      // Requests whose loads had failed held rows of images after those that they lacked.
      102496,
      // Loads that held blocks waited for each other.
      103728,
      106172,
      // A kept block was computed again by another holder, with the same content.
      148664,
      // A prompt that is not cut had one of its images computed in each step, however small.
      206215,
      // An image that must be whole took more than the step's prefills may: others got less than 0.
      176902,
  };
  for (const uint64_t seed : seeds) {
    Simulation simulation(seed);
    INFO("SIM_SEED=" << seed << ": " << simulation.Describe());
    CHECK(simulation.Run().ToString() == OkStatus().ToString());
  }
}

TEST_CASE("Simulation: every request ends once with its right answer, whatever happens around it") {
  REQUIRE(InitLog("simulation", "ERROR").ok());
  const bool one = std::getenv("SIM_SEED") != nullptr;
  const uint64_t first = one ? FromEnvironment("SIM_SEED", 0) : FromEnvironment("SIM_FIRST", 1);
  const uint64_t num_runs = one ? 1 : FromEnvironment("SIM_RUNS", 5000);
  Coverage total;
  for (uint64_t seed = first; seed < first + num_runs; ++seed) {
    Simulation simulation(seed);
    INFO("SIM_SEED=" << seed << ": " << simulation.Describe());  // also shown when a CHECK ends it
    const Status status = simulation.Run();
    REQUIRE(status.ToString() == OkStatus().ToString());
    const Coverage& run = simulation.coverage();
    total.num_requests += run.num_requests;
    total.num_steps += run.num_steps;
    total.num_preemptions += run.num_preemptions;
    total.num_hit_tokens += run.num_hit_tokens;
    total.num_aborts += run.num_aborts;
    total.num_request_failures += run.num_request_failures;
    total.num_restarts += run.num_restarts;
    total.num_resets += run.num_resets;
    total.num_pauses += run.num_pauses;
    total.num_kv_loads += run.num_kv_loads;
    total.num_kv_load_failures += run.num_kv_load_failures;
    total.num_kept_tables += run.num_kept_tables;
    total.num_grammars += run.num_grammars;
    total.num_adapter_steps += run.num_adapter_steps;
    total.num_images += run.num_images;
    total.num_encoded_images += run.num_encoded_images;
    total.num_continued_images += run.num_continued_images;
    total.num_drafts += run.num_drafts;
    total.num_accepted_drafts += run.num_accepted_drafts;
  }
  WARN(num_runs << " runs from seed " << first << ": " << total.num_requests << " requests, "
                << total.num_steps << " steps, " << total.num_preemptions << " preemptions, "
                << total.num_hit_tokens << " cached tokens, " << total.num_aborts << " aborts, "
                << total.num_request_failures << " failed requests, " << total.num_restarts
                << " restarts, " << total.num_resets << " resets, " << total.num_pauses
                << " pauses, " << total.num_kv_loads << " KV loads, " << total.num_kv_load_failures
                << " of them failed, " << total.num_kept_tables << " kept tables, "
                << total.num_grammars << " grammars, " << total.num_adapter_steps
                << " steps full of adapters, " << total.num_images << " images, "
                << total.num_encoded_images << " times computed, " << total.num_continued_images
                << " times gone on with, " << total.num_drafts << " drafts, "
                << total.num_accepted_drafts << " of them accepted");
  if (num_runs < 5000) return;
  // The draw covers what it is meant to.
  CHECK(total.num_preemptions > 1000);
  CHECK(total.num_hit_tokens > 10000);
  CHECK(total.num_aborts > 500);
  CHECK(total.num_request_failures > 100);
  CHECK(total.num_restarts > 50);
  CHECK(total.num_resets > 500);
  CHECK(total.num_pauses > 200);
  CHECK(total.num_kv_loads > 1000);
  CHECK(total.num_kv_load_failures > 200);
  CHECK(total.num_kept_tables > 1000);
  CHECK(total.num_grammars > 1000);
  CHECK(total.num_adapter_steps > 1000);
  CHECK(total.num_images > 5000);
  CHECK(total.num_encoded_images > 2000);
  CHECK(total.num_continued_images > 2000);
  CHECK(total.num_drafts > 10000);
  CHECK(total.num_accepted_drafts > 5000);
}

}  // namespace
}  // namespace tandem
