#pragma once

// Which part of a model one rank holds. Today every rank is rank 0 of 1 and holds all of it.
// Values, any thread.

#include <cstdint>

namespace tandem {

// Items [begin, begin + count).
struct Slice {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t end() const { return begin + count; }
  bool operator==(const Slice&) const = default;
};

// One of `size` ranks that share something.
struct RankShare {
  int rank = 0;
  int size = 1;
  bool is_first() const { return rank == 0; }
  bool is_last() const { return rank == size - 1; }
};

// The layers of one stage of a pipeline: runs of equal length, with one layer more in the last
// stage but one and in those before it where num_layers is not a multiple (the last stage has the
// head, and the first the embedding). vLLM splits the same way.
Slice LayersOf(int64_t num_layers, RankShare stage);

}  // namespace tandem
