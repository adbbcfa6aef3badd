#include "engine_core/models/rank_share.h"

#include <algorithm>

#include "common/check.h"

namespace tandem {

Slice LayersOf(int64_t num_layers, RankShare stage) {
  CHECK(stage.rank >= 0 && stage.rank < stage.size) << stage.rank << " of " << stage.size;
  const int64_t layers = num_layers / stage.size, extra = num_layers % stage.size;
  // The stages that have one layer more are [first_long, size - 1).
  const int64_t first_long = stage.size - 1 - extra;
  const int64_t num_long_before = std::clamp<int64_t>(stage.rank - first_long, 0, extra);
  const bool is_long = stage.rank >= first_long && stage.rank < stage.size - 1;
  return {.begin = stage.rank * layers + num_long_before, .count = layers + (is_long ? 1 : 0)};
}

}  // namespace tandem
