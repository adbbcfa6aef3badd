#include "engine_core/executor/model_sizes.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/kv_cache/kv_cache_manager.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// All but the last of each `period` layers have a window.
ModelConfig Windows(int64_t num_layers, int64_t period, int64_t window, int64_t num_kv_heads,
                    int64_t head_dim) {
  ModelConfig config;
  config.num_layers = num_layers;
  config.num_heads = num_kv_heads;
  config.num_kv_heads = num_kv_heads;
  config.head_dim = head_dim;
  config.sliding_window = window;
  for (int64_t i = 0; i < num_layers; ++i) config.sliding_layers.push_back((i + 1) % period != 0);
  return config;
}

ModelConfig GptOss20b() { return Windows(24, 2, 128, 8, 64); }
ModelConfig Gemma3Of4b() { return Windows(34, 6, 1024, 4, 256); }
ModelConfig Olmo3Of7b() { return Windows(32, 4, 4096, 32, 128); }

ModelConfig Llama4Scout() {
  ModelConfig config = Windows(48, 4, 0, 8, 128);
  config.sliding_layers.assign(48, false);
  config.attention_chunk_size = 8192;
  for (int64_t i = 0; i < 48; ++i) config.rope_layers.push_back((i + 1) % 4 != 0);
  return config;
}

// Every `period`-th layer has keys and values, the others states.
ModelConfig States(int64_t num_layers, int64_t period, int64_t num_kv_heads, int64_t head_dim) {
  ModelConfig config = Windows(num_layers, period, 0, num_kv_heads, head_dim);
  config.recurrent.layers = std::exchange(config.sliding_layers, {});
  config.recurrent.kernel = 4;
  return config;
}

ModelConfig Qwen3Next80b() {
  ModelConfig config = States(48, 4, 2, 256);
  config.recurrent.kind = RecurrentKind::kDelta;
  config.recurrent.num_key_heads = 16;
  config.recurrent.num_value_heads = 32;
  config.recurrent.key_dim = config.recurrent.value_dim = 128;
  return config;
}

// 24 of its layers have states, 4 keys and values, and 24 neither.
ModelConfig NemotronHOf8b() {
  ModelConfig config = States(52, 2, 8, 128);
  config.recurrent.kind = RecurrentKind::kScan;
  config.recurrent.num_groups = 8;
  config.recurrent.num_key_heads = config.recurrent.num_value_heads = 128;
  config.recurrent.key_dim = 128;
  config.recurrent.value_dim = 64;
  config.recurrent.kv_layers.assign(52, false);
  for (const size_t i : {7, 18, 29, 40}) config.recurrent.kv_layers[i] = true;
  for (const size_t i : {18, 40}) config.recurrent.layers[i] = false;
  return config;
}

TEST_CASE("model sizes: groups have as many layers as the rarer kind, or nearly") {
  CHECK(LayerGroupsOf(GptOss20b()) == LayerGroups{.num_full = 1, .num_local = 1, .window = 128});
  CHECK(LayerGroupsOf(Gemma3Of4b()) ==
        LayerGroups{.num_full = 1, .num_local = 6, .window = 1024});  // of 5 layers, the last of 4
  CHECK(LayerGroupsOf(Olmo3Of7b()) == LayerGroups{.num_full = 1, .num_local = 3, .window = 4096});
  CHECK(LayerGroupsOf(Llama4Scout()) == LayerGroups{.num_full = 1, .num_local = 3, .chunk = 8192});
  ModelConfig model = Windows(9, 2, 7, 1, 32);  // 5 local layers and 4
  CHECK(LayerGroupsOf(model) == LayerGroups{.num_full = 1, .num_local = 2, .window = 7});
  model = Windows(11, 2, 7, 1, 32);  // 6 and 5: one group of each, the second with a gap
  CHECK(LayerGroupsOf(model) == LayerGroups{.num_full = 1, .num_local = 1, .window = 7});
  model.sliding_layers.assign(11, true);
  CHECK(LayerGroupsOf(model) == LayerGroups::OfWindow(7));
  model.sliding_layers.assign(11, false);
  CHECK(LayerGroupsOf(model) == LayerGroups());
}

TEST_CASE("model sizes: layers with states are groups of their own") {
  ModelConfig model = Qwen3Next80b();
  CHECK(LayerGroupsOf(model) == LayerGroups::OfStates(1, 3));
  const KvCacheSpec spec = KvSpecOf(model, 32, 10, KvFormat::kCompute, {}, LayerGroupsOf(model));
  CHECK((spec.num_layers == 12 && spec.has_states_in_place && spec.layers.empty()));
  CHECK(KvPlacesOf(model)[47].layer == 11);
  CHECK(KvPlacesOf(model)[47].group == 0);
  CHECK(KvPlacesOf(model)[46].layer == 11);
  CHECK(KvPlacesOf(model)[46].group == 3);
  const KvCacheSpec whole = KvSpecOf(model, 32, 10);
  CHECK((whole.num_layers == 48 && !whole.has_states_in_place && whole.num_with_state(48) == 36));
  CHECK(LayerGroupsOf(NemotronHOf8b()) == LayerGroups::OfStates(1, 6));
  CHECK(KvPlacesOf(NemotronHOf8b())[1].group == 0);  // keeps nothing
  // Of one kind; of both kinds in each layer; beside windows.
  model.recurrent.layers.assign(48, true);
  CHECK(LayerGroupsOf(model) == LayerGroups::OfStates(0, 1));
  CHECK(!KvSpecOf(model, 32, 10, KvFormat::kCompute, {}, LayerGroupsOf(model)).has_states_in_place);
  model.recurrent.kv_layers.assign(48, true);
  CHECK(LayerGroupsOf(model) == LayerGroups());
  model = Qwen3Next80b();
  model.sliding_window = 7;
  model.sliding_layers.assign(48, false);
  model.sliding_layers[47] = true;
  CHECK(LayerGroupsOf(model) == LayerGroups());
}

TEST_CASE("model sizes: blocks are so long that a state takes no more than keys and values") {
  const auto tokens = [](const ModelConfig& model, KvFormat format = KvFormat::kCompute) {
    return std::pair(DefaultBlockSize(model, DType::kBf16, format, false),
                     DefaultBlockSize(model, DType::kBf16, format, false, LayerGroupsOf(model)));
  };
  CHECK(tokens(Qwen3Next80b()) == std::pair<int64_t, int64_t>{3232, 1088});
  CHECK(tokens(NemotronHOf8b()) == std::pair<int64_t, int64_t>{4096, 1056});
  CHECK(tokens(Qwen3Next80b(), KvFormat::kInt8).second == 2144);
  CHECK(tokens(GptOss20b()) == std::pair<int64_t, int64_t>{32, 32});
}

TEST_CASE("model sizes: layers of equal place in their groups share a layer of the cache") {
  const ModelConfig model = Gemma3Of4b();
  const KvCacheSpec spec = KvSpecOf(model, 32, 10, KvFormat::kCompute, {}, LayerGroupsOf(model));
  CHECK(spec.num_layers == 5);
  CHECK(KvSpecOf(model, 32, 10).num_layers == 34);
  const std::vector<KvPlace> places = KvPlacesOf(model);
  REQUIRE(places.size() == 34);
  const auto is_at = [&](size_t layer, int layer_of_cache, int group) {
    return places[layer].layer == layer_of_cache && places[layer].group == group;
  };
  CHECK(is_at(5, 0, 0));
  CHECK(is_at(29, 4, 0));
  for (const int layer : {0, 1, 2, 3, 4}) CHECK(is_at(static_cast<size_t>(layer), layer, 1));
  CHECK(is_at(6, 0, 2));
  CHECK(is_at(33, 3, 6));
  // One block is that of one group: no place of a group is taken twice.
  std::set<std::pair<int, int>> taken;
  for (const KvPlace& place : places) CHECK(taken.emplace(place.layer, place.group).second);
}

TEST_CASE("model sizes: each stage spreads its own layers over all groups") {
  const ModelConfig model = Qwen3Next80b();
  const LayerGroups groups = LayerGroupsOf(model);
  const auto layers_of_cache = [](const ModelConfig& of, RankShare stage) {
    return KvSpecOf(of, 32, 10, KvFormat::kCompute, {stage, {}}, LayerGroupsOf(of)).num_layers;
  };
  CHECK(layers_of_cache(model, {0, 2}) == 6);  // of 12, as half of the layers are there
  const std::vector<KvPlace> places = KvPlacesOf(model, {1, 2});
  REQUIRE(places.size() == 24);
  CHECK((places[0].layer == 0 && places[0].group == 1));    // layer 24
  CHECK((places[22].layer == 5 && places[22].group == 3));  // layer 46
  CHECK((places[23].layer == 5 && places[23].group == 0));  // layer 47
  for (int size = 1; size <= 48; ++size) {
    int num_layers = 0;
    for (int rank = 0; rank < size; ++rank) {
      CAPTURE(size, rank);
      const RankShare stage = {rank, size};
      const Slice slice = LayersOf(48, stage);
      const KvCacheSpec spec = KvSpecOf(model, 32, 10, KvFormat::kCompute, {stage, {}}, groups);
      CHECK((spec.has_states_in_place && spec.layers.empty()));
      const std::vector<KvPlace> of_stage = KvPlacesOf(model, stage);
      REQUIRE(static_cast<int64_t>(of_stage.size()) == slice.count);
      std::set<std::pair<int, int>> taken;
      for (size_t i = 0; i < of_stage.size(); ++i) {
        const KvPlace& place = of_stage[i];
        CHECK(taken.emplace(place.layer, place.group).second);
        CHECK((place.layer < spec.num_layers && place.group < groups.count()));
        const bool has_state = model.recurrent.HasState(slice.begin + static_cast<int64_t>(i));
        CHECK(groups.IsLocal(place.group) == has_state);
      }
      num_layers += static_cast<int>(of_stage.size());
    }
    CHECK(num_layers == 48);
  }
  // The second stage of 52 has a layer that keeps nothing.
  CHECK(layers_of_cache(NemotronHOf8b(), {1, 52}) == 1);
  CHECK(layers_of_cache(Gemma3Of4b(), {0, 2}) == 3);  // 2 and 15 layers for 1 and 6 groups
}

TEST_CASE("model sizes: blocks fit the part of a state that a rank has") {
  const auto tokens = [](const ModelConfig& model, int num_shares) {
    return DefaultBlockSize(model, DType::kBf16, KvFormat::kCompute, false, LayerGroupsOf(model),
                            {.rank = 0, .size = num_shares});
  };
  // Two key-value heads: four ranks have one each, and a quarter of a state.
  ModelConfig model = Qwen3Next80b();
  model.num_heads = 16;
  CHECK(tokens(model, 2) == 1088);
  CHECK(tokens(model, 4) == 544);
}

TEST_CASE("model sizes: layers that use another's choice of keys keep no key of an index") {
  ModelConfig model;
  model.num_layers = 4;
  model.num_heads = 4;
  model.num_kv_heads = 1;
  model.head_dim = 48 + 16;
  model.latent.kv_rank = 32;
  model.index.dim = 16;
  CHECK(KvSpecOf(model, 32, 10).memory_of(3).head_dim == 64);
  model.index.shared_layers = {false, false, true, false};
  const KvCacheSpec spec = KvSpecOf(model, 32, 10);
  for (int layer = 0; layer < 4; ++layer) {
    CHECK(spec.memory_of(layer).head_dim == (layer == 2 ? 48 : 64));
  }
}

TEST_CASE("model sizes: the log has what a token takes in each kind of layers") {
  const auto text = [](const ModelConfig& model, const LayerGroups& groups, int block_size = 32) {
    const KvCacheSpec spec = KvSpecOf(model, block_size, 10, KvFormat::kCompute, {}, groups);
    const KeyBytes key_bytes = [=](int heads, int dim) {
      return int64_t{2} * block_size * heads * dim;
    };
    return KvMemoryText(model, spec, groups, spec.bytes_per_block(key_bytes));
  };
  CHECK(text(GptOss20b(), {}) == "49,152 bytes per token in 24 layers");
  CHECK(text(GptOss20b(), LayerGroupsOf(GptOss20b())) ==
        "24,576 bytes per token in 12 layers, 24,576 in 12 that keep a window of 128; blocks of 2 "
        "groups of layers");
  CHECK(text(Llama4Scout(), LayerGroupsOf(Llama4Scout())) ==
        "49,152 bytes per token in 12 layers, 147,456 in 36 that keep a chunk of 8192; blocks of 4 "
        "groups of layers");
  CHECK(text(Qwen3Next80b(), LayerGroupsOf(Qwen3Next80b()), 1088) ==
        "24,576 bytes per token in 12 layers, 80,216,064 for a state in each of 36 more; blocks of "
        "4 groups of layers");
}

// The tables of docs/developer/figures.md: blocks in use, each of the layers of a group, when a
// request computes its last token.
int32_t BlocksAt(int32_t num_tokens, const LayerGroups& groups, int32_t block_size = 32) {
  ExecutorLimits limits = {.block_size = block_size,
                           .max_num_seqs = 1,
                           .max_num_batched_tokens = 2048,
                           .max_model_len = num_tokens,
                           .groups = groups};
  limits.num_blocks = 1 + MaxHeldBlocks(CacheWithLimits({}, limits));
  KvCacheManager cache(CacheWithLimits({}, limits));
  const std::vector<TokenId> tokens(static_cast<size_t>(num_tokens), 1);
  SequenceView sequence;
  sequence.token_ids = tokens;
  Admission admission;
  admission.num_tokens = std::min(num_tokens, 2048);
  const RequestSlot slot{0};
  REQUIRE(cache.TryAdmit(slot, sequence, admission));
  for (int32_t end = 4096; end <= num_tokens; end += 2048) {
    sequence.num_computed_tokens = end - 2048;
    REQUIRE(cache.TryGrow(slot, sequence, end));
  }
  sequence.num_computed_tokens = num_tokens - 1;
  REQUIRE(cache.TryGrow(slot, sequence, num_tokens));
  return cache.pool().num_blocks() - 1 - cache.pool().num_free();
}

TEST_CASE("model sizes: what a request of 8,192 tokens holds, and one of 32,768") {
  const auto held = [](const ModelConfig& model, int32_t num_tokens) {
    const LayerGroups groups = LayerGroupsOf(model);
    const int64_t layers = model.num_layers;
    const KvCacheSpec spec = KvSpecOf(model, 32, 10, KvFormat::kCompute, {}, groups);
    // Blocks of 32 tokens in one layer.
    return std::vector<int64_t>{BlocksAt(num_tokens, {}) * layers,
                                int64_t{BlocksAt(num_tokens, groups)} * spec.num_layers};
  };
  CHECK(held(GptOss20b(), 8192) == std::vector<int64_t>{6144, 3120});
  CHECK(held(GptOss20b(), 32768) == std::vector<int64_t>{24576, 12336});
  CHECK(held(Gemma3Of4b(), 8192) == std::vector<int64_t>{8704, 2240});
  CHECK(held(Gemma3Of4b(), 32768) == std::vector<int64_t>{34816, 6080});
  CHECK(held(Olmo3Of7b(), 8192) == std::vector<int64_t>{8192, 5120});
  CHECK(held(Olmo3Of7b(), 32768) == std::vector<int64_t>{32768, 11264});
  CHECK(held(Llama4Scout(), 8192) == std::vector<int64_t>{12288, 12288});
  CHECK(held(Llama4Scout(), 32768) == std::vector<int64_t>{49152, 21504});
}

TEST_CASE("model sizes: what a request to a model with states holds") {
  // MiB, before and after.
  const auto held = [](const ModelConfig& model, int32_t num_tokens) {
    const auto bytes = [&](const LayerGroups& groups) {
      const auto block_size = static_cast<int32_t>(
          DefaultBlockSize(model, DType::kBf16, KvFormat::kCompute, false, groups));
      const KeyBytes key_bytes = [=](int heads, int dim) {
        return int64_t{2} * block_size * heads * dim;
      };
      const KvCacheSpec spec = KvSpecOf(model, block_size, 10, KvFormat::kCompute, {}, groups);
      return (BlocksAt(num_tokens, groups, block_size) * spec.bytes_per_block(key_bytes)) >> 20;
    };
    return std::vector<int64_t>{bytes({}), bytes(LayerGroupsOf(model))};
  };
  CHECK(held(Qwen3Next80b(), 1000) == std::vector<int64_t>{151, 102});
  CHECK(held(Qwen3Next80b(), 8192) == std::vector<int64_t>{453, 280});
  CHECK(held(Qwen3Next80b(), 32768) == std::vector<int64_t>{1662, 867});
  CHECK(held(NemotronHOf8b(), 1000) == std::vector<int64_t>{162, 115});
  CHECK(held(NemotronHOf8b(), 8192) == std::vector<int64_t>{325, 231});
  CHECK(held(NemotronHOf8b(), 32768) == std::vector<int64_t>{1302, 627});
}

TEST_CASE("model sizes: drafts of a step, at least those of one request") {
  const auto most = [](int32_t num_requests, int32_t num_drafts) {
    ExecutorLimits limits = {.max_num_seqs = num_requests, .vocab_size = 100};
    limits.drafts.num_speculative_tokens = num_drafts;
    return ModelLimitsOf(limits).max_drafts;
  };
  CHECK(most(256, 0) == 0);
  CHECK(most(4, 5) == 20);
  CHECK(most(256, 5) == 64);
  CHECK(most(2, 100) == 100);
  CHECK(most(1, 100) == 100);
}

}  // namespace
}  // namespace tandem
