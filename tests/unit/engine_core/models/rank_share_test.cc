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

TEST_CASE("rank share: query heads are split, key-value heads go with them") {
  ModelConfig config;
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.head_dim = 16;
  const HeadShare whole = HeadsOf(config);
  CHECK(whole.heads == Slice{0, 8});
  CHECK(whole.kv_heads == Slice{0, 4});
  CHECK(whole.qkv_size() == 16 * 16);

  const HeadShare second = HeadsOf(config, {.rank = 1, .size = 2});
  CHECK(second.heads == Slice{4, 4});
  CHECK(second.kv_heads == Slice{2, 2});
  CHECK(second.q_rows() == Slice{64, 64});
  CHECK(second.kv_rows() == Slice{32, 32});
  CHECK(second.attention_shape() ==
        AttentionShape{.num_heads = 4, .num_kv_heads = 2, .head_dim = 16});
}

TEST_CASE("rank share: ranks that outnumber the key-value heads hold copies of them") {
  ModelConfig config;
  config.num_heads = 8;
  config.num_kv_heads = 2;
  config.head_dim = 2;
  std::vector<int64_t> kv_heads;
  for (int rank = 0; rank < 8; ++rank) {
    const HeadShare heads = HeadsOf(config, {.rank = rank, .size = 8});
    CHECK(heads.heads == Slice{rank, 1});
    CHECK(heads.kv_heads.count == 1);
    kv_heads.push_back(heads.kv_heads.begin);
  }
  CHECK(kv_heads == std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 1});
}

}  // namespace
}  // namespace tandem
