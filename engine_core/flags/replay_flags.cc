#include "engine_core/flags/replay_flags.h"

namespace tandem {

// clang-format off
std::vector<Flag> ReplayFlags(ReplayConfig& c) {
  return {
      {"replay", &c.file, "Run a recording of the flight recorder again and compare each step; serves nobody"},
      {"until-step", &c.until_step, "With --replay: stop before this step and print requests and blocks; 0: at the end", {.min = 0}},
      {"replay-from", &c.from, "With --replay: begin at the checkpoint nearest to the end (or to --until-step), or at the first one", {.choices = {"nearest", "first"}}},
      {"replay-tokens", &c.tokens, "With --replay: computed by the model again, or as recorded, without a model; auto: computed if the recording is of a CPU", {.choices = {"auto", "computed", "recorded"}}},
  };
}
// clang-format on

}  // namespace tandem
