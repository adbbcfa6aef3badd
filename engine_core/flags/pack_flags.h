#pragma once

// The flag of `tandem-engine-core --pack-to`, which serves nobody; `tandem pack` gives it. Thread:
// main. The engine flags of the model, its type and its formats count too.

#include <string>
#include <vector>

#include "common/flags.h"

namespace tandem {

struct PackConfig {
  std::string out;  // empty: serve
};

std::vector<Flag> PackFlags(PackConfig& config);

}  // namespace tandem
