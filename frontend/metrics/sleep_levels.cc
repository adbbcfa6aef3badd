#include "frontend/metrics/sleep_levels.h"

#include <algorithm>

#include "frontend/metrics/metrics.h"

namespace tandem {

SleepLevels::SleepLevels(const std::vector<EngineMetrics*>& engines) : engines_(engines.size()) {
  for (size_t i = 0; i < engines.size(); ++i) {
    engines_[i].metrics = engines[i];
    Show(&engines_[i], kAwake);
  }
}

void SleepLevels::Show(One* one, int64_t level) {
  one->level = level;
  auto& state = one->metrics->engine_sleep_state;
  state[SleepState::kAwake].Set(level == kAwake ? 1 : 0);
  state[SleepState::kWeightsOffloaded].Set(level == 1 ? 1 : 0);
  state[SleepState::kDiscardAll].Set(level == 2 ? 1 : 0);
}

void SleepLevels::OnSleep(int64_t level) {
  for (One& each : engines_) {
    Show(&each, std::max<int64_t>(each.level, level));
    if (level > 0) each.wanted = std::max<int64_t>(each.wanted, level);
  }
}

void SleepLevels::OnWakeCall() {
  for (One& each : engines_) each.wanted = kAwake;
}

void SleepLevels::OnAwake() {
  OnWakeCall();
  for (One& each : engines_) Show(&each, kAwake);
}

void SleepLevels::OnReport(int engine_index, std::optional<int64_t> level) {
  One& one = engines_[static_cast<size_t>(engine_index)];
  Show(&one, level.value_or(kAwake));
  // A frontend that is new learns here what one before it has asked for.
  if (level && *level > 0) one.wanted = *level;
}

void SleepLevels::OnTakeOver(int engine_index) {
  engines_[static_cast<size_t>(engine_index)].wanted = kAwake;
}

std::optional<int64_t> SleepLevels::Wanted(int engine_index) const {
  const int64_t wanted = engines_[static_cast<size_t>(engine_index)].wanted;
  return wanted == kAwake ? std::nullopt : std::optional(wanted);
}

}  // namespace tandem
