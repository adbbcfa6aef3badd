#pragma once

// The flags of `tandem-engine-core --replay`, which serves nobody. Thread: main. All engine flags
// of the recorded process count too, and those given beside --replay in their place.

#include <cstdint>
#include <string>
#include <vector>

#include "common/flags.h"

namespace tandem {

struct ReplayConfig {
  std::string file;  // empty: no replay
  int64_t until_step = 0;
  std::string from = "nearest";
  std::string tokens = "auto";
};

std::vector<Flag> ReplayFlags(ReplayConfig& config);

}  // namespace tandem
