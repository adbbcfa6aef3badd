#pragma once

// The flags of `tandem-engine-core --pack-to` and `--verify-packed`, which serves nobody; `tandem
// pack` gives them. Thread: main. Of a packing the engine flags of the model, its type and its
// formats count too.

#include <string>
#include <vector>

#include "common/flags.h"

namespace tandem {

struct PackConfig {
  std::string out;  // empty: serve
  bool verifies = false;
};

std::vector<Flag> PackFlags(PackConfig& config);

}  // namespace tandem
