#include "engine_core/models/rank_share.h"

#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::vector<int64_t> LayerCounts(int64_t num_layers, int num_stages) {
  std::vector<int64_t> counts;
  int64_t next = 0;
  for (int rank = 0; rank < num_stages; ++rank) {
    const Slice layers = LayersOf(num_layers, {.rank = rank, .size = num_stages});
    CHECK(layers.begin == next);
    next = layers.end();
    counts.push_back(layers.count);
  }
  CHECK(next == num_layers);
  return counts;
}

TEST_CASE("rank share: stages split the layers evenly, the last but one takes the first extra") {
  using Counts = std::vector<int64_t>;
  CHECK(LayerCounts(5, 1) == Counts{5});
  CHECK(LayerCounts(8, 4) == Counts{2, 2, 2, 2});
  CHECK(LayerCounts(9, 4) == Counts{2, 2, 3, 2});
  CHECK(LayerCounts(10, 4) == Counts{2, 3, 3, 2});
  CHECK(LayerCounts(11, 4) == Counts{3, 3, 3, 2});
  CHECK(LayerCounts(2, 3) == Counts{1, 1, 0});
}

}  // namespace
}  // namespace tandem
