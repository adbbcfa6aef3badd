// Whole towers of made-up weights, and the text models that take their rows.

#include "engine_core/models/vision_tower.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine_core/models/registry.h"
#include "engine_core/weights/dummy_weights.h"
#include "tests/support/kernels/one_request.h"
#include "tests/support/made_towers.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::json;

std::unique_ptr<Backend> Cpu(DType dtype, int num_threads) {
  return MakeCpuBackend({.dtype = dtype, .num_threads = num_threads}).value();
}

TEST_CASE("towers: an image's bits depend on no other image and on no number of threads") {
  const std::string architecture =
      GENERATE("Qwen3VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration",
               "Gemma3ForConditionalGeneration");
  const DType dtype = GENERATE(DType::kF32, DType::kBf16);
  CAPTURE(architecture, dtype);
  const auto config = ParseModelConfig(MadeTowerConfig(architecture).dump(), "");
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  const auto one = Cpu(dtype, 1), three = Cpu(dtype, 3);
  const auto alone = LoadMadeTower(*config, one.get()), busy = LoadMadeTower(*config, three.get());
  INFO(alone.status().ToString());
  REQUIRE(alone.ok());
  REQUIRE(busy.ok());
  const MadeImage small = DrawImage(*config, 4, 6, 1), large = DrawImage(*config, 30, 22, 2);
  const std::vector<float> expected = RowsOf(alone->get(), one.get(), small);
  CHECK(RowsOf(busy->get(), three.get(), large) != expected);
  CHECK(RowsOf(busy->get(), three.get(), small) == expected);
  for (const float number : expected) REQUIRE(std::isfinite(number));
  // The reference computes the same in another order.
  if (dtype != DType::kF32) return;
  const auto reference = MakeReferenceBackend();
  const auto slow = LoadMadeTower(*config, reference.get());
  REQUIRE(slow.ok());
  const std::vector<float> rows = RowsOf(slow->get(), reference.get(), small);
  for (size_t i = 0; i < rows.size(); ++i) CHECK(rows[i] == Approx(expected[i]).margin(1e-4));
}

TEST_CASE("towers: the parts of two images take turns, and the bits stay") {
  const std::string architecture =
      GENERATE("Qwen3VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration",
               "Gemma3ForConditionalGeneration");
  const DType dtype = GENERATE(DType::kF32, DType::kBf16);
  CAPTURE(architecture, dtype);
  const auto config = ParseModelConfig(MadeTowerConfig(architecture).dump(), "");
  const auto backend = Cpu(dtype, 2);
  const auto tower = LoadMadeTower(*config, backend.get());
  REQUIRE(tower.ok());
  const MadeImage images[] = {DrawImage(*config, 4, 6, 1),
                              DrawImage(*config, 30, 22, 2)};  // 660 patches
  std::vector<float> rows[2];
  TowerWork works[2];
  for (int i = 0; i < 2; ++i) {
    const ImagePatches& patches = images[i].patches;
    const int64_t tokens = (*tower)->NumTokens(patches), columns = (*tower)->num_columns();
    rows[i].resize(static_cast<size_t>(tokens * columns));
    auto work = (*tower)->Begin(patches, Tensor(rows[i].data(), DType::kF32, {tokens, columns}));
    REQUIRE(work.ok());
    works[i] = *std::move(work);
  }
  REQUIRE(works[1].RunTo(0.5).ok());
  CHECK_FALSE(works[1].done());
  constexpr int kNumTurns = 40;
  for (int turn = 1; turn <= kNumTurns; ++turn) {
    for (TowerWork& work : works) {
      REQUIRE(work.RunTo(turn == kNumTurns ? 1 : 0.9 * turn / kNumTurns).ok());
    }
  }
  for (int i = 0; i < 2; ++i) {
    CHECK(works[i].done());
    CHECK(rows[i] == RowsOf(tower->get(), backend.get(), images[i]));
  }
}

TEST_CASE("tower work: parts run in order, as many as the share needs, and none after a failure") {
  std::string log;
  const auto stage = [&](const std::string& name, int64_t fails_at = -1) {
    return [&log, name, fails_at](int64_t begin, int64_t count) {
      log += name + std::to_string(begin) + "+" + std::to_string(count) + " ";
      return begin == fails_at ? InternalError("it fails") : OkStatus();
    };
  };
  TowerWork work;
  work.AddRuns({3, 4}, 10, stage("a"));
  work.AddRuns({1}, 0, stage("b"));
  work.Add(1000, 1e9, stage("c"));  // of the fewest rows
  CHECK_FALSE(work.done());
  REQUIRE(work.RunTo(1e-12).ok());
  CHECK(log == "a0+3 ");
  REQUIRE(work.RunTo(0.2).ok());
  CHECK(log == "a0+3 a3+1 b0+1 c0+96 c96+96 c192+96 ");
  REQUIRE(work.RunTo(0.2).ok());  // that is done
  REQUIRE(work.RunTo(1).ok());
  CHECK_THAT(log, Catch::Matchers::EndsWith("c960+40 "));
  CHECK(work.done());

  log.clear();
  TowerWork failing;
  failing.AddRuns({5, 10, 15}, 1, stage("d", 5));
  CHECK_FALSE(failing.RunTo(1).ok());
  CHECK_FALSE(failing.RunTo(1).ok());
  CHECK(log == "d0+5 d5+5 ");
  CHECK_FALSE(TowerWork(InternalError("no room")).RunTo(1).ok());
  CHECK(TowerWork::RowsAtOnce(0) == 480);
}

TEST_CASE("towers: Qwen2.5's layers with windows see no patch beyond theirs") {
  Json json = MadeTowerConfig("Qwen2_5_VLForConditionalGeneration");
  json["vision_config"]["fullatt_block_indexes"] = Json::array();
  const auto windowed = ParseModelConfig(json.dump(), "");
  json["vision_config"]["fullatt_block_indexes"] = {1};
  const auto mixed = ParseModelConfig(json.dump(), "");
  const auto backend = Cpu(DType::kF32, 1);
  const auto tower = LoadMadeTower(*windowed, backend.get()),
             whole = LoadMadeTower(*mixed, backend.get());
  REQUIRE(tower.ok());
  REQUIRE(whole.ok());
  // Windows of 2 by 2 merged rows: the image has 2 by 2 of them, whose first merged row is 0.
  MadeImage image = DrawImage(*windowed, 8, 8, 3);
  const std::vector<float> before = RowsOf(tower->get(), backend.get(), image);
  const std::vector<float> whole_before = RowsOf(whole->get(), backend.get(), image);
  for (float& number : image.numbers) {
    const auto patch = (&number - image.numbers.data()) / windowed->vision.patch_numbers();
    if (patch >= 4 * 15) number += 1;  // the last merged row alone
  }
  const std::vector<float> after = RowsOf(tower->get(), backend.get(), image);
  const std::vector<float> whole_after = RowsOf(whole->get(), backend.get(), image);
  const auto changes = [](const std::vector<float>& a, const std::vector<float>& b, int64_t row) {
    return !std::equal(a.begin() + row * 32, a.begin() + (row + 1) * 32, b.begin() + row * 32);
  };
  for (int64_t row = 0; row < 16; ++row) {
    const bool is_beside = row / 4 >= 2 && row % 4 >= 2;
    CAPTURE(row);
    CHECK(changes(before, after, row) == is_beside);
    CHECK(changes(whole_before, whole_after, row));
  }
}

TEST_CASE("towers: what is not built is refused at the start") {
  const auto backend = Cpu(DType::kF32, 1);
  const auto message = [&](const Json& json, RankShare share = {}) {
    const auto config = ParseModelConfig(json.dump(), "");
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    const auto tower = LoadMadeTower(*config, backend.get(), share);
    REQUIRE_FALSE(tower.ok());
    return tower.status().message();
  };
  const Json qwen = MadeTowerConfig("Qwen3VLForConditionalGeneration");
  CHECK_THAT(message(qwen, {.rank = 0, .size = 2}), Contains("ranks"));
  Json json = qwen;
  json["vision_config"]["hidden_act"] = "quick_gelu";
  CHECK_THAT(message(json), Contains("quick_gelu"));
  json = qwen;
  json["vision_config"]["out_hidden_size"] = 48;
  CHECK_THAT(message(json), Contains("out_hidden_size") && Contains("48"));
  json = qwen;
  json["text_config"]["rope_scaling"]["mrope_section"] = {4, 2, 1};
  CHECK_THAT(message(json), Contains("mrope_section"));
  json = qwen;
  json["text_config"]["num_hidden_layers"] = 1;
  CHECK_THAT(message(json), Contains("deepstack_visual_indexes"));
  json = MadeTowerConfig("Gemma3ForConditionalGeneration");
  json["text_config"]["sliding_window"] = 3;
  CHECK_THAT(message(json), Contains("sliding_window"));
  const auto text = ParseModelConfig(MadeTowerConfig("Qwen3ForCausalLM").dump(), "");
  REQUIRE(text.ok());
  CHECK(*LoadMadeTower(*text, backend.get()) == nullptr);
}

// The logits of a text of made-up weights.
class Text {
 public:
  explicit Text(const std::string& architecture)
      : config_(ParseModelConfig(MadeTowerConfig(architecture).dump(), "")),
        backend_(Cpu(DType::kBf16, 1)) {
    REQUIRE(config_.ok());
    const auto weights = MakeDummyWeights(5);
    auto model = LoadModel({*config_, kMadeTowerLimits, *weights, *backend_});
    REQUIRE(model.ok());
    model_ = std::move(*model);
  }

  std::vector<float> Logits(ModelStep step) {
    std::vector<int32_t> ids = {7, 1, 0, 3, 60, 2, 2, 5};
    const auto count = static_cast<int64_t>(ids.size());
    const AttentionShape shape = HeadsOf(*config_).attention_shape();
    const auto cache = backend_->AllocateKvCache({.num_layers = 3,
                                                  .num_kv_heads = shape.num_kv_heads,
                                                  .head_dim = shape.head_dim,
                                                  .block_size = 32,
                                                  .num_blocks = 1});
    const auto plan = backend_->MakeAttentionPlan(shape, count, 1).value();
    const OneRequest request(static_cast<int32_t>(count), 32, {0});
    plan->Fill(request.batch());
    step.token_ids = Tensor(ids.data(), DType::kI32, {count});
    step.plan = plan.get();
    step.kv_cache = cache->get();
    model_->Forward(step);
    std::vector<float> logits(static_cast<size_t>(count * config_->vocab_size));
    model_->Logits(Tensor(logits.data(), DType::kF32, {count, config_->vocab_size}),
                   request.batch().positions);
    return logits;
  }

  bool SameRow(const std::vector<float>& a, const std::vector<float>& b, int64_t row) const {
    const int64_t size = config_->vocab_size;
    return std::equal(a.begin() + row * size, a.begin() + (row + 1) * size, b.begin() + row * size);
  }

 private:
  StatusOr<ModelConfig> config_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

TEST_CASE("M-RoPE: three equal positions have the bits of one") {
  Text text(GENERATE("Qwen3VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"));
  const std::vector<float> plain = text.Logits({});
  std::vector<int32_t> positions;
  for (int axis = 0; axis < 3; ++axis) {
    for (int32_t t = 0; t < 8; ++t) positions.push_back(t);
  }
  const Tensor all(positions.data(), DType::kI32, {3, 8});
  ModelStep step;
  step.mrope_positions = all;
  CHECK(text.Logits(step) == plain);
  positions[8 + 4] = 2;  // the height of token 4
  const std::vector<float> turned = text.Logits(step);
  for (int64_t t = 0; t < 8; ++t) CHECK(text.SameRow(turned, plain, t) == (t < 4));
  // The step after it has the plain bits again.
  CHECK(text.Logits({}) == plain);
}

TEST_CASE("tokens of an image see each other, and nothing else changes") {
  Text text("Gemma3ForConditionalGeneration");
  const std::vector<float> plain = text.Logits({});
  std::vector<int32_t> last_seen = {0, 0, 0, 0, 0, 0, 0, 0};
  ModelStep step;
  step.last_seen = Tensor(last_seen.data(), DType::kI32, {8});
  CHECK(text.Logits(step) == plain);
  last_seen = {0, 0, 4, 4, 4, 0, 0, 0};
  const std::vector<float> seen = text.Logits(step);
  for (int64_t t = 0; t < 8; ++t) CHECK(text.SameRow(seen, plain, t) == (t < 2));
}

TEST_CASE("deepstack: rows of the first layers are added, each after its own") {
  Text text("Qwen3VLForConditionalGeneration");
  const std::vector<float> plain = text.Logits({});
  std::vector<float> rows(2 * 2 * 32, 0.0f);  // two tokens, two layers
  const EmbeddedRows added[] = {{.first = 3, .values = Tensor(rows.data(), DType::kF32, {2, 64})}};
  ModelStep step;
  step.deepstack = added;
  CHECK(text.Logits(step) == plain);
  rows[64 + 40] = 3;  // of token 4, after the second layer
  const std::vector<float> second = text.Logits(step);
  for (int64_t t = 0; t < 8; ++t) CHECK(text.SameRow(second, plain, t) == (t < 4));
  rows[64 + 40] = 0;
  rows[64 + 8] = 3;  // after the first
  const std::vector<float> first = text.Logits(step);
  for (int64_t t = 0; t < 8; ++t) CHECK(text.SameRow(first, plain, t) == (t < 4));
  CHECK(first != second);
}

}  // namespace
}  // namespace tandem
