#include "engine_core/models/model.h"

#include <cmath>

#include "engine_core/models/rope_table.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

ModelConfig ConfigOf(const std::string& model) {
  const auto config = ReadModelConfig(TANDEM_GOLDEN_DIR "/models/" + model);
  REQUIRE(config.ok());
  return *config;
}

Status LoadError(const ModelConfig& config, const std::string& weights_of) {
  const auto weights = OpenSafetensors(TANDEM_GOLDEN_DIR "/models/" + weights_of);
  REQUIRE(weights.ok());
  const auto backend = MakeReferenceBackend();
  const ModelLimits limits = {.max_tokens = 8, .max_logits_rows = 4, .max_positions = 64};
  const auto model = LoadModel({config, limits, **weights, *backend});
  REQUIRE_FALSE(model.ok());
  return model.status();
}

TEST_CASE("models: an unknown architecture lists the known ones") {
  ModelConfig config = ConfigOf("llama_tied");
  config.architecture = "PerceptronForCausalLM";
  CHECK_THAT(LoadError(config, "llama_tied").message(), Contains("PerceptronForCausalLM") &&
                                                            Contains("LlamaForCausalLM, ") &&
                                                            Contains(", Qwen3ForCausalLM"));
}

TEST_CASE("models: a tensor that is missing is named with its file") {
  ModelConfig config = ConfigOf("llama_tied");
  config.tie_word_embeddings = false;
  CHECK_THAT(LoadError(config, "llama_tied").message(),
             Contains("lm_head.weight") && Contains("llama_tied"));
  config = ConfigOf("llama_tied");
  config.num_layers = 9;
  CHECK_THAT(LoadError(config, "llama_tied").message(), Contains("model.layers.2."));
}

TEST_CASE("models: a tensor of another shape than the config's is named with both shapes") {
  ModelConfig config = ConfigOf("llama_tied");
  config.intermediate_size = 128;
  CHECK_THAT(LoadError(config, "llama_tied").message(),
             Contains("gate_proj.weight") && Contains("[96, 64]") && Contains("[128, 64]"));
}

TEST_CASE("models: an activation that is not known is refused") {
  ModelConfig config = ConfigOf("llama_tied");
  config.hidden_act = "gelu";
  CHECK_THAT(LoadError(config, "llama_tied").message(), Contains("gelu") && Contains("silu"));
}

TEST_CASE("models: dummy weights give any shape finite logits") {
  ModelConfig config = ConfigOf("qwen3");
  config.num_layers = 12;
  config.hidden_size = 192;
  const auto weights = MakeDummyWeights(3);
  const auto backend = MakeReferenceBackend();
  const ModelLimits limits = {.max_tokens = 8, .max_logits_rows = 4, .max_positions = 64};
  const auto model = LoadModel({config, limits, *weights, *backend});
  REQUIRE(model.ok());
  const auto cache = backend->AllocateKvCache(
      {.num_layers = 12, .num_kv_heads = 2, .head_dim = 32, .block_size = 32, .num_blocks = 2});
  REQUIRE(cache.ok());
  const auto plan = backend->MakeAttentionPlan({4, 2, 32}, 8, 1);
  std::vector<int32_t> ids = {1, 2, 3}, positions = {0, 1, 2}, slots = {32, 33, 34}, blocks = {1};
  const std::vector<int32_t> query_start = {0, 3}, context_len = {3};
  AttentionBatch batch;
  batch.query_start = query_start;
  batch.context_len = context_len;
  batch.positions = Tensor(positions.data(), DType::kI32, {3});
  batch.slot_mapping = Tensor(slots.data(), DType::kI32, {3});
  batch.block_table = Tensor(blocks.data(), DType::kI32, {1, 1});
  backend->PlanAttention(batch, plan.get());
  (*model)->Forward({.token_ids = Tensor(ids.data(), DType::kI32, {3}),
                     .plan = plan.get(),
                     .kv_cache = cache->get()});
  std::vector<float> logits(static_cast<size_t>(config.vocab_size));
  int32_t last = 2;
  (*model)->Logits(Tensor(logits.data(), DType::kF32, {1, config.vocab_size}),
                   Tensor(&last, DType::kI32, {1}));
  float low = logits[0], high = logits[0];
  for (const float x : logits) {
    REQUIRE(std::isfinite(x));
    low = std::min(low, x);
    high = std::max(high, x);
  }
  CHECK(low < high);
}

TEST_CASE("rope table: unscaled angles") {
  const RopeConfig rope;
  const RopeTable table = MakeRopeTable(rope, 4, 3);
  REQUIRE(table.cos.size() == 6);
  CHECK(table.cos[0] == 1.0f);
  CHECK(table.sin[0] == 0.0f);
  CHECK(table.cos[2 * 2] == Approx(std::cos(2.0)));       // position 2, pair 0: 2 rad
  CHECK(table.sin[2 * 2 + 1] == Approx(std::sin(0.02)));  // pair 1: 10000^(-1/2) per position
}

TEST_CASE("rope table: llama3 keeps short waves, slows long ones by the factor") {
  RopeConfig rope;
  rope.type = RopeType::kLlama3;
  rope.factor = 8;
  rope.original_max_position_embeddings = 64;
  const auto plain = RopeFrequencies(RopeConfig(), 16), scaled = RopeFrequencies(rope, 16);
  CHECK(scaled.front() == plain.front());
  CHECK(scaled.back() == Approx(plain.back() / 8));
  for (size_t i = 1; i < scaled.size(); ++i) CHECK(scaled[i] < scaled[i - 1]);
}

TEST_CASE("rope table: yarn keeps the first pairs, interpolates the last, scales cos and sin") {
  RopeConfig rope;
  rope.type = RopeType::kYarn;
  rope.factor = 4;
  rope.original_max_position_embeddings = 64;
  rope.attention_factor = 1.25;
  const auto plain = RopeFrequencies(RopeConfig(), 16), scaled = RopeFrequencies(rope, 16);
  CHECK(scaled.front() == plain.front());
  CHECK(scaled.back() == Approx(plain.back() / 4));
  CHECK(MakeRopeTable(rope, 16, 1).cos[0] == 1.25f);
}

}  // namespace
}  // namespace tandem
