#pragma once

// Groups of a model's layers. A KV block covers block_size tokens in the layers of one group; a
// request has, for the same tokens, a block of each. In full groups a token sees all keys before
// it; in local groups only the last `window` keys, or those of its chunk, so that older blocks can
// be given back. Groups of recurrent layers are local: a block has the state after its last token,
// and a token goes on from the state before it, which is in its own block or in the one before. By
// default a model is one full group. Values; thread: any.

#include <algorithm>
#include <cstdint>

namespace tandem {

constexpr int32_t kMostGroups = 255;

struct LayerGroups {
  int32_t num_full = 1;
  int32_t num_local = 0;
  // Of local groups, one of them: keys that a token sees, its own included, or positions of a
  // chunk.
  int32_t window = 0;
  int32_t chunk = 0;
  // Local groups have states; `window` is 2 then.
  bool has_states = false;

  // All layers have a window.
  static LayerGroups OfWindow(int32_t window) {
    return {.num_full = 0, .num_local = 1, .window = window};
  }

  static LayerGroups OfStates(int32_t num_full, int32_t num_local) {
    return {.num_full = num_full, .num_local = num_local, .window = 2, .has_states = true};
  }

  // Full groups come first.
  int32_t count() const { return num_full + num_local; }
  bool IsLocal(int32_t group) const { return group >= num_full; }
  // The first position that the token at `position` sees in local groups.
  int32_t FirstSeen(int32_t position) const {
    if (chunk > 0) return position - position % chunk;
    return std::max(0, position - window + 1);
  }
  // Keys that attention sees in local groups; 0: all, or those of a chunk.
  int32_t sliding_window() const { return has_states ? 0 : window; }
  // The most positions before a token that it sees there.
  int32_t reach() const { return (chunk > 0 ? chunk : window) - 1; }
  friend bool operator==(const LayerGroups&, const LayerGroups&) = default;
};

}  // namespace tandem
