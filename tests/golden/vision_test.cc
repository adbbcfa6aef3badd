// Vision towers and the text models behind them against numbers recorded from HF transformers: the
// set `vision`, which lies in TANDEM_GOLDENS alone.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "engine_core/executor/model_runner.h"
#include "engine_core/models/pack_model.h"
#include "engine_core/models/vision_tower.h"
#include "engine_core/weights/open_weights.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/golden_logits.h"
#include "tests/support/files/temp_folder.h"
#include "tests/support/kernels/one_request.h"
#include "tests/support/vision_images.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

constexpr double kTolerance = 2e-3;  // of stages and logits in float32
constexpr int kBlockSize = 32;

std::vector<float> Floats(const Tensor& x) {
  std::vector<float> values(static_cast<size_t>(x.NumElements()));
  for (int64_t i = 0; i < x.rows(); ++i) {
    ConvertTensor(Tensor(values.data() + i * x.RowSize(), DType::kF32, {1, x.RowSize()}),
                  Tensor(static_cast<std::byte*>(x.data) + i * x.row_stride * SizeOf(x.dtype),
                         x.dtype, {1, x.RowSize()}));
  }
  return values;
}

// A model of the set with its tower.
class Loaded {
 public:
  Loaded(const std::string& folder, Backend* backend)
      : backend_(backend), config_(ReadModelConfig(folder)) {
    INFO(config_.status().ToString());
    REQUIRE(config_.ok());
    auto weights = OpenWeights(folder, "auto", *config_);
    REQUIRE(weights.ok());
    const LoadContext context = {*config_, limits_, **weights, *backend};
    auto tower = LoadVisionTower(context);
    INFO(tower.status().ToString());
    REQUIRE(tower.ok());
    REQUIRE(*tower != nullptr);
    tower_ = std::move(*tower);
    auto model = LoadModel(context);
    REQUIRE(model.ok());
    model_ = std::move(*model);
  }

  VisionTower& tower() { return *tower_; }
  const ModelConfig& config() const { return *config_; }

  // The rows of an image, [tokens, columns].
  std::vector<float> Rows(const ImagePatches& image) {
    REQUIRE(tower_->Check(image).ok());
    const int64_t tokens = tower_->NumTokens(image), columns = tower_->num_columns();
    std::vector<float> rows(static_cast<size_t>(tokens * columns));
    const Status status =
        tower_->Encode(image, Tensor(rows.data(), DType::kF32, {tokens, columns}));
    INFO(status.ToString());
    REQUIRE(status.ok());
    return rows;
  }

  // The logits of all positions of a case, whose images have these rows.
  std::vector<std::vector<float>> Logits(const json& one, std::vector<std::vector<float>>* images,
                                         std::map<std::string, std::vector<float>>* states);

 private:
  Backend* backend_;
  StatusOr<ModelConfig> config_;
  ModelLimits limits_ = {.max_tokens = 256, .max_logits_rows = 256, .max_positions = 512};
  std::unique_ptr<VisionTower> tower_;
  std::unique_ptr<Model> model_;
};

std::vector<std::vector<float>> Loaded::Logits(const json& one,
                                               std::vector<std::vector<float>>* images,
                                               std::map<std::string, std::vector<float>>* states) {
  auto ids = one["prompt_ids"].get<std::vector<int32_t>>();
  const auto count = static_cast<int64_t>(ids.size());
  const int64_t hidden = config_->hidden_size, columns = tower_->num_columns();
  std::vector<EmbeddedRows> embedded, deepstack;
  std::vector<int32_t> last_seen(ids.size(), 0);
  const auto ranges = one["placeholder_ranges"].get<std::vector<std::vector<int64_t>>>();
  REQUIRE(ranges.size() == images->size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int64_t first = ranges[i][0], length = ranges[i][1];
    const Tensor rows((*images)[i].data(), DType::kF32, {length, columns});
    embedded.push_back({first, rows.Columns(0, hidden)});
    if (columns > hidden) deepstack.push_back({first, rows.Columns(hidden, columns - hidden)});
    for (int64_t t = first; t < first + length; ++t) {
      ids[static_cast<size_t>(t)] = 0;
      last_seen[static_cast<size_t>(t)] = static_cast<int32_t>(first + length - 1);
    }
  }
  std::vector<int32_t> positions;
  for (const json& axis : one.value("mrope_positions", json::array())) {
    for (const json& position : axis) positions.push_back(position);
  }
  const auto num_blocks = static_cast<int32_t>((count + kBlockSize - 1) / kBlockSize);
  const auto cache =
      backend_->AllocateKvCache(KvSpecOf(*config_, kBlockSize, num_blocks, KvFormat::kCompute));
  REQUIRE(cache.ok());
  std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  const OneRequest request(static_cast<int32_t>(count), kBlockSize, blocks);
  const auto plan = backend_->MakeAttentionPlan(AttentionShapeOf(*config_), count, 1).value();
  plan->Fill(request.batch());
  const DType act = backend_->activation_dtype();
  const OwnedTensor first = backend_->device().Allocate(act, {count, hidden}).value();
  const OwnedTensor last = backend_->device().Allocate(act, {count, hidden}).value();
  const StateTap taps[] = {{.num_layers = 1, .out = first},
                           {.num_layers = static_cast<int>(config_->num_layers), .out = last}};
  const bool is_siglip = config_->vision.family == VisionFamily::kSiglip;
  model_->Forward(
      {.token_ids = Tensor(ids.data(), DType::kI32, {count}),
       .embedded = embedded,
       .plan = plan.get(),
       .kv_cache = cache->get(),
       .taps = taps,
       .deepstack = deepstack,
       .mrope_positions =
           positions.empty() ? Tensor() : Tensor(positions.data(), DType::kI32, {3, count}),
       .last_seen = is_siglip ? Tensor(last_seen.data(), DType::kI32, {count}) : Tensor()});
  std::vector<float>& first_states = (*states)["text_layer0"] = Floats(first);
  // HF's are those before the features of that layer are added.
  for (const EmbeddedRows& rows : deepstack) {
    const std::vector<float> added = Floats(rows.values.Columns(0, hidden));
    float* of_image = first_states.data() + rows.first * hidden;
    for (size_t i = 0; i < added.size(); ++i) of_image[i] -= added[i];
  }
  (*states)["text_last"] = Floats(last);
  const OwnedTensor logits =
      backend_->device().Allocate(DType::kF32, {count, config_->vocab_size}).value();
  model_->Logits(logits, request.batch().positions);
  std::vector<std::vector<float>> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(Floats(logits.view().Rows(i, 1)));
  return rows;
}

void CheckFolder(const std::string& folder, bool reference, DType dtype) {
  const auto backend = MakeTestBackend(reference, dtype, 2);
  Loaded loaded(folder, backend.get());
  const GoldenLogits tensors(folder, "tensors.safetensors");
  const bool is_f32 = dtype == DType::kF32;
  double worst = 0;
  const json goldens = ReadGoldens(folder);
  REQUIRE(goldens["cases"].size() == 6);
  for (const json& one : goldens["cases"]) {
    const std::string index = one["index"].dump();
    CAPTURE(folder, index);
    const auto check = [&](const std::string& name, const std::vector<float>& values) {
      const std::string key = name + "." + index;
      if (!is_f32 || !tensors.Has(key)) return;
      CAPTURE(key);
      const std::vector<float> expected = tensors.Get(key);
      REQUIRE(values.size() == expected.size());
      const double difference = MaxDifference(values, expected.data());
      worst = std::max(worst, difference);
      CHECK(difference <= kTolerance);
    };
    std::map<std::string, std::vector<float>> stages;
    loaded.tower().SetTap([&](const std::string& stage, const Tensor& x) {
      const std::vector<float> values = Floats(x);
      std::vector<float>& all = stages[stage];
      all.insert(all.end(), values.begin(), values.end());
    });
    std::vector<std::vector<float>> images;
    std::vector<float> embeddings;
    for (const json& file : one["images"]) {
      const Pixels pixels = MakePixels(folder, tensors, file);
      images.push_back(loaded.Rows(pixels.image));
      const int64_t columns = loaded.tower().num_columns();
      const Tensor rows(images.back().data(), DType::kF32,
                        {static_cast<int64_t>(images.back().size()) / columns, columns});
      const std::vector<float> own = Floats(rows.Columns(0, loaded.config().hidden_size));
      embeddings.insert(embeddings.end(), own.begin(), own.end());
    }
    check("image_embeds", embeddings);
    for (const auto& [stage, values] : stages) check(stage, values);
    std::map<std::string, std::vector<float>> states;
    const auto logits = loaded.Logits(one, &images, &states);
    for (const auto& [stage, values] : states) check(stage, values);
    check("f32", logits.back());
    std::vector<float> all;
    for (const auto& row : logits) all.insert(all.end(), row.begin(), row.end());
    check("f32_all", all);
    if (!is_f32) {
      // A state carries roundings from token to token, as in models_test.cc.
      const double factor = loaded.config().recurrent.num_layers() > 0 ? 3.5 : 2;
      const std::vector<float> expected = tensors.Get("f32." + index);
      CHECK(MaxDifference(logits.back(), expected.data()) <=
            factor * one["bf16_max_abs_diff"].get<double>() + 0.05);
    }
  }
  UNSCOPED_INFO(folder << ": worst float32 difference " << worst);
  CHECK(worst <= kTolerance);
}

TEST_CASE("towers and the texts behind them equal HF's in float32 on the reference backend") {
  for (const std::string& folder : VisionFolders()) {
    CheckFolder(folder, true, DType::kF32);
  }
}

TEST_CASE("towers and the texts behind them equal HF's in float32 on the cpu backend") {
  for (const std::string& folder : VisionFolders()) {
    CheckFolder(folder, false, DType::kF32);
  }
}

TEST_CASE("towers and the texts behind them are as near to HF's in bfloat16 as its own") {
  for (const std::string& folder : VisionFolders()) {
    CheckFolder(folder, false, DType::kBf16);
  }
}

TEST_CASE("a packed model has its tower, in the compute type whatever the text model's format is") {
  for (const std::string& folder : VisionFolders()) {
    CAPTURE(folder);
    const auto backend = MakeTestBackend(false, DType::kBf16, 1);
    const TempFolder to;
    const std::string out = to.PathOf("out");
    const PackModelOptions options = {
        .model = folder, .out = out, .quantization = "int8", .formats = WeightFormatsOf("int8")};
    const auto packed = PackModel(options, *ReadModelConfig(folder), backend.get());
    INFO(packed.status().ToString());
    REQUIRE(packed.ok());
    Loaded from(folder, backend.get());
    const GoldenLogits tensors(folder, "tensors.safetensors");
    const Pixels pixels = MakePixels(folder, tensors, "a_rgb.png");
    const auto config = ReadModelConfig(out);
    const auto weights = OpenWeights(out, "auto", *config);
    REQUIRE(weights.ok());
    const ModelLimits limits = {.max_tokens = 1, .max_logits_rows = 1, .max_positions = 2};
    auto tower = LoadVisionTower({*config, limits, **weights, *backend, options.formats});
    INFO(tower.status().ToString());
    REQUIRE(tower.ok());
    const std::vector<float> expected = from.Rows(pixels.image);
    std::vector<float> rows(expected.size());
    const int64_t columns = (*tower)->num_columns();
    const auto tokens = static_cast<int64_t>(rows.size()) / columns;
    REQUIRE(
        (*tower)->Encode(pixels.image, Tensor(rows.data(), DType::kF32, {tokens, columns})).ok());
    CHECK(rows == expected);
  }
}

}  // namespace
}  // namespace tandem
