#include "frontend/metrics/sleep_levels.h"

#include "frontend/metrics/metrics.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// The states that are 1, by engine.
std::string States(Metrics* metrics) {
  std::string states;
  for (int i = 0; i < metrics->num_engines(); ++i) {
    auto& state = metrics->engine(i).engine_sleep_state;
    states += state[SleepState::kAwake].Value() > 0 ? "a" : "";
    states += state[SleepState::kWeightsOffloaded].Value() > 0 ? "1" : "";
    states += state[SleepState::kDiscardAll].Value() > 0 ? "2" : "";
    states += ".";
  }
  return states;
}

TEST_CASE("sleep levels: an engine has the deepest level until it is awake, and so has the next") {
  Metrics metrics({.model_name = "m", .num_engines = 2});
  SleepLevels& levels = metrics.sleep_levels();
  CHECK(States(&metrics) == "a.a.");
  levels.OnSleep(0);
  CHECK(States(&metrics) == "..");
  CHECK_FALSE(levels.Wanted(0).has_value());  // a pause ends with its engine
  levels.OnSleep(2);
  levels.OnSleep(1);
  CHECK(States(&metrics) == "2.2.");
  CHECK(levels.Wanted(0) == 2);
  levels.OnReport(0, std::nullopt);  // the next one has just started
  CHECK(States(&metrics) == "a.2.");
  CHECK(levels.Wanted(0) == 2);
  levels.OnWakeCall();
  CHECK(States(&metrics) == "a.2.");
  CHECK_FALSE(levels.Wanted(0).has_value());
  levels.OnAwake();
  CHECK(States(&metrics) == "a.a.");
}

TEST_CASE("sleep levels: a new frontend learns from its engines, and a swap ends a sleep") {
  Metrics metrics({.model_name = "m", .num_engines = 2});
  SleepLevels& levels = metrics.sleep_levels();
  levels.OnReport(1, 1);
  CHECK(States(&metrics) == "a.1.");
  CHECK_FALSE(levels.Wanted(0).has_value());
  CHECK(levels.Wanted(1) == 1);
  levels.OnTakeOver(1);
  CHECK_FALSE(levels.Wanted(1).has_value());
}

}  // namespace
}  // namespace tandem
