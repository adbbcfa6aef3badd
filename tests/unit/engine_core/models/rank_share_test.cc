#include "engine_core/models/rank_share.h"

#include <vector>

#include "engine_core/models/recurrent_share.h"

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

// The last two of six layers read the keys and values of the third and the fourth.
ModelConfig SharingConfig() {
  ModelConfig config;
  config.num_layers = 6;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.hidden_size = config.intermediate_size = config.vocab_size = 64;
  config.sliding_window = 32;
  config.sliding_layers = {true, false, true, false, true, false};
  config.uneven = {.global_head_dim = 32, .num_global_kv_heads = 1, .num_sharing_layers = 2};
  return config;
}

TEST_CASE("rank share: layers whose heads differ have each their own") {
  const ModelConfig config = SharingConfig();
  const RankShare second = {.rank = 1, .size = 2};
  const HeadShare local = HeadsOfLayer(config, 0, second), global = HeadsOfLayer(config, 1, second);
  CHECK(local.q_rows() == Slice{32, 32});
  CHECK(local.kv_rows() == Slice{16, 16});
  CHECK(global.q_rows() == Slice{64, 64});
  CHECK(global.kv_rows() == Slice{0, 32});  // a copy
  CHECK(HeadsOfLayer(config, 1).kv_heads == Slice{0, 1});
}

TEST_CASE("rank share: layers that share keys and values are in the stage that has these") {
  const ModelConfig config = SharingConfig();
  const auto layers = [&](int rank, int size) { return LayersOf(config, {rank, size}); };
  CHECK(layers(0, 1) == Slice{0, 6});
  CHECK(layers(0, 2) == Slice{0, 2});
  CHECK(layers(1, 2) == Slice{2, 4});
  CHECK(layers(0, 3) == Slice{0, 1});
  CHECK(layers(1, 3) == Slice{1, 1});
  CHECK(layers(2, 3) == Slice{2, 4});
  CHECK(CheckRanks(config, {.tensor_parallel_size = 2, .pipeline_parallel_size = 3}).ok());
  using Catch::Matchers::Contains;
  CHECK_THAT(CheckRanks(config, {.pipeline_parallel_size = 4}).message(),
             Contains("--pipeline-parallel-size 4") && Contains("at most 3") &&
                 Contains("layers from 2 on"));
  ModelConfig even = config;
  even.uneven.num_sharing_layers = 0;
  CHECK(LayersOf(even, {1, 2}) == Slice{3, 3});
}

TEST_CASE("rank share: a vocabulary that does not divide leaves the last ranks less") {
  const auto share = [](int rank) { return RankShare{.rank = rank, .size = 4}; };
  CHECK(share(0).OfAbout(10) == Slice{0, 3});
  CHECK(share(2).OfAbout(10) == Slice{6, 3});
  CHECK(share(3).OfAbout(10) == Slice{9, 1});
  CHECK(share(3).OfAbout(8) == Slice{6, 2});
  CHECK(share(3).OfAbout(5) == Slice{5, 0});
}

TEST_CASE(
    "rank share: a model that cannot be split so is refused with the size that is in the way") {
  ModelConfig config;
  config.num_layers = 3;
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.vocab_size = 512;
  CHECK(CheckRanks(config, {.tensor_parallel_size = 2, .pipeline_parallel_size = 3}).ok());
  CHECK(CheckRanks(config, {.tensor_parallel_size = 8}).ok());
  ModelConfig chooses_keys = config;
  chooses_keys.index.shared_layers.assign(static_cast<size_t>(config.num_layers), false);
  CHECK(LayersOf(chooses_keys, {0, 2}) == Slice{0, 2});
  chooses_keys.index.shared_layers[2] = true;
  CHECK(LayersOf(chooses_keys, {0, 2}) == Slice{0, 1});
  CHECK(LayersOf(chooses_keys, {1, 2}) == Slice{1, 2});
  CHECK(CheckRanks(chooses_keys, {.pipeline_parallel_size = 2}).ok());
  chooses_keys.index.shared_layers[1] = true;
  CHECK_THAT(CheckRanks(chooses_keys, {.pipeline_parallel_size = 2}).message(),
             Catch::Matchers::Contains("--pipeline-parallel-size 2: stage 0 would have no layer"));
  const auto refusal = [&](const RankSizes& sizes) { return CheckRanks(config, sizes).message(); };
  using Catch::Matchers::Contains;
  CHECK_THAT(refusal({.tensor_parallel_size = 3}),
             Contains("--tensor-parallel-size 3") && Contains("num_attention_heads, which is 8"));
  CHECK_THAT(refusal({.pipeline_parallel_size = 4}),
             Contains("--pipeline-parallel-size 4") && Contains("number of layers, which is 3"));
  config.intermediate_size = 99;
  CHECK_THAT(refusal({.tensor_parallel_size = 2}), Contains("intermediate_size, which is 99"));
  config.intermediate_size = 96;
  config.num_heads = 12;
  config.hidden_size = 60;
  config.num_kv_heads = 6;
  CHECK_THAT(refusal({.tensor_parallel_size = 4}), Contains("num_key_value_heads"));
  config.mixture_layers = {true, true, true};
  config.num_experts = 5;
  config.moe_intermediate_size = 31;
  CHECK_THAT(refusal({.tensor_parallel_size = 2}), Contains("moe_intermediate_size, which is 31"));
  CHECK_THAT(refusal({.tensor_parallel_size = 2, .splits_experts = true}),
             Contains("number of experts, which is 5"));
  config.moe_intermediate_size = 32;
  config.vocab_size = 1;
  CHECK_THAT(refusal({.tensor_parallel_size = 2}), Contains("vocab_size, which is 1"));
  ModelConfig uneven = SharingConfig();
  uneven.uneven.input_size = 15;
  CHECK_THAT(CheckRanks(uneven, {.tensor_parallel_size = 2}).message(),
             Contains("hidden_size_per_layer_input, which is 15"));
  uneven.uneven.input_size = 0;
  uneven.num_heads = uneven.num_kv_heads = 12;
  uneven.hidden_size = uneven.intermediate_size = 12;
  uneven.uneven.num_global_kv_heads = 3;
  CHECK_THAT(CheckRanks(uneven, {.tensor_parallel_size = 4}).message(),
             Contains("num_global_key_value_heads") && Contains("which is 3"));
}

// A layer of two key heads, each with two value heads.
RecurrentConfig DeltaHeads() {
  RecurrentConfig config;
  config.kind = RecurrentKind::kDelta;
  config.layers = {true};
  config.kernel = 4;
  config.num_key_heads = 2;
  config.num_value_heads = 4;
  config.key_dim = 16;
  config.value_dim = 8;
  return config;
}

TEST_CASE("recurrent share: value heads go with their key heads, whichever way they are counted") {
  using Runs = std::vector<Slice>;
  RecurrentConfig config = DeltaHeads();
  const RankShare second = {.rank = 1, .size = 2};
  const RecurrentShare runs = RecurrentShareOf(config, second);
  CHECK(runs.own.num_key_heads == 1);
  CHECK(runs.own.num_value_heads == 2);
  CHECK(runs.heads == Runs{{2, 2}});
  CHECK(runs.values == Runs{{16, 16}});
  CHECK(runs.channels == Runs{{16, 16}, {32 + 16, 16}, {64 + 16, 16}});
  CHECK(runs.own.channels() == 48);
  CHECK(2 * runs.own.state_size() == config.state_size());

  config.key_heads_take_turns = true;
  const RecurrentShare turns = RecurrentShareOf(config, second);
  CHECK(turns.own.num_turns() == 2);
  CHECK(turns.heads == Runs{{1, 1}, {3, 1}});
  CHECK(turns.values == Runs{{8, 8}, {24, 8}});
  CHECK(turns.channels == Runs{{16, 16}, {48, 16}, {64 + 8, 8}, {64 + 24, 8}});
}

TEST_CASE("recurrent share: groups of a scan are cut, or copied where ranks outnumber them") {
  using Runs = std::vector<Slice>;
  RecurrentConfig config;
  config.kind = RecurrentKind::kScan;
  config.layers = {true};
  config.kernel = 4;
  config.num_key_heads = config.num_value_heads = 8;
  config.key_dim = 16;
  config.value_dim = 4;
  config.num_groups = 2;
  const RecurrentShare half = RecurrentShareOf(config, {.rank = 1, .size = 2});
  CHECK(half.channels == Runs{{16, 16}, {32 + 16, 16}, {64 + 16, 16}});
  CHECK(half.own.num_groups == 1);
  CHECK_FALSE(half.norms_across);

  const RecurrentShare quarter = RecurrentShareOf(config, {.rank = 2, .size = 4});
  CHECK(quarter.heads == Runs{{4, 2}});
  CHECK(quarter.channels == Runs{{16, 8}, {32 + 16, 16}, {64 + 16, 16}});
  CHECK(quarter.own.num_groups == 1);
  CHECK(quarter.norms_across);
  config.has_norm = false;
  CHECK_FALSE(RecurrentShareOf(config, {.rank = 2, .size = 4}).norms_across);
}

TEST_CASE("recurrent share: heads and groups that ranks cannot share are refused by name") {
  using Catch::Matchers::Contains;
  ModelConfig config;
  config.num_layers = 1;
  config.num_heads = config.num_kv_heads = 12;
  config.hidden_size = 48;
  config.intermediate_size = 96;
  config.vocab_size = 512;
  config.recurrent = DeltaHeads();
  const auto refusal = [&](int ranks) {
    return CheckRanks(config, {.tensor_parallel_size = ranks}).message();
  };
  CHECK(refusal(2).empty());
  CHECK_THAT(refusal(4),
             Contains("--tensor-parallel-size 4") && Contains("linear_num_key_heads, which is 2"));
  config.recurrent.kind = RecurrentKind::kScan;
  config.recurrent.num_key_heads = config.recurrent.num_value_heads = 12;
  config.recurrent.num_groups = 3;
  CHECK(refusal(3).empty());
  CHECK(refusal(6).empty());
  CHECK_THAT(refusal(2), Contains("number of groups in recurrent layers") && Contains("3"));
  config.recurrent.num_groups = 1;
  CHECK(refusal(4).empty());
}

}  // namespace
}  // namespace tandem
