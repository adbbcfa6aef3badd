// directed: one situation each. traces: random families. hazard_fixed: a victim of the same step
// had filled blocks (R7), recorded with the never-computed blocks unregistered. spec_directed: one
// situation each, with drafts and adapters. connector_*: the same two kinds with a KV connector.
// TANDEM_GOLDENS has random families of both too.

#include "tests/support/files/golden_folders.h"
#include "tests/support/traces/scheduler_traces.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

const std::string kHere = std::string(TANDEM_GOLDEN_DIR) + "/scheduler/";

TEST_CASE("vLLM traces, directed, FCFS: every field of every step") {
  CHECK(ReplayTraces(kHere + "directed.jsonl.gz", "fcfs") == 29);
}

TEST_CASE("vLLM traces, directed, priority: every field of every step") {
  CHECK(ReplayTraces(kHere + "directed.jsonl.gz", "priority") == 4);
}

TEST_CASE("vLLM traces, 21 random families: every field of every step") {
  CHECK(ReplayTraces(kHere + "traces.jsonl.gz") == 63);
}

TEST_CASE("vLLM traces, random families of TANDEM_GOLDENS: every field of every step") {
  const auto more = WholeGoldens();
  if (!more) {
    WARN("SKIPPED: TANDEM_GOLDENS is not set");
    return;
  }
  CHECK(ReplayTraces(*more + "/scheduler/traces.jsonl.gz") == 147);
}

TEST_CASE("vLLM traces, R7 with never-computed blocks unregistered") {
  CHECK(ReplayTraces(kHere + "hazard_fixed.jsonl.gz") == 8);
}

TEST_CASE("vLLM traces with drafts and adapters, directed: every field of every step") {
  CHECK(ReplayTraces(kHere + "spec_directed.jsonl.gz") == 24);
}

TEST_CASE("vLLM traces with drafts and adapters, random families of TANDEM_GOLDENS") {
  const auto more = WholeGoldens();
  if (!more) {
    WARN("SKIPPED: TANDEM_GOLDENS is not set");
    return;
  }
  const std::string folder = *more + "/scheduler_spec/";
  CHECK(ReplayTraces(folder + "directed.jsonl.gz") == 24);
  CHECK(ReplayTraces(folder + "traces.jsonl.gz") == 27);
}

TEST_CASE("vLLM traces with a KV connector, directed: every field of every step") {
  CHECK(ReplayTraces(kHere + "connector_directed.jsonl.gz") == 52);
}

TEST_CASE("vLLM traces with a KV connector, with its hazards repaired") {
  CHECK(ReplayTraces(kHere + "connector_hazard_fixed.jsonl.gz") == 7);
}

TEST_CASE("vLLM traces with a KV connector, random families of TANDEM_GOLDENS") {
  const auto more = WholeGoldens();
  if (!more) {
    WARN("SKIPPED: TANDEM_GOLDENS is not set");
    return;
  }
  CHECK(ReplayTraces(*more + "/scheduler_connector/traces.jsonl.gz") == 47);
}

}  // namespace
}  // namespace tandem
