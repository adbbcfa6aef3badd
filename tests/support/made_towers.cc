#include "tests/support/made_towers.h"

#include <random>

#include "common/check.h"
#include "engine_core/weights/dummy_weights.h"

namespace tandem {

using Json = nlohmann::json;

Json MadeTowerConfig(const std::string& architecture) {
  Json json = {{"architectures", {architecture}},
               {"text_config",
                {{"vocab_size", 64},
                 {"hidden_size", 32},
                 {"intermediate_size", 48},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 2},
                 {"num_key_value_heads", 1},
                 {"head_dim", 16},
                 {"sliding_window", 16},
                 {"rope_scaling", {{"type", "default"}, {"mrope_section", {4, 2, 2}}}}}},
               {"vision_config",
                {{"depth", 3},
                 {"hidden_size", 144},  // heads of 72, as published models have them
                 {"intermediate_size", 40},
                 {"num_heads", 2},
                 {"patch_size", 4},
                 {"out_hidden_size", 32}}}};
  Json& vision = json["vision_config"];
  if (architecture.starts_with("Gemma")) {
    json["text_config"].erase("rope_scaling");
    json["mm_tokens_per_image"] = 4;
    vision["num_hidden_layers"] = 2;
    vision["num_attention_heads"] = 2;
    vision["image_size"] = 24;
  } else if (architecture.starts_with("Qwen2_5")) {
    vision["hidden_size"] = 160;
    vision["window_size"] = 16;
    vision["fullatt_block_indexes"] = {1};
  } else {
    vision["num_position_embeddings"] = 9;
    vision["deepstack_visual_indexes"] = {0, 2};
  }
  return json;
}

MadeImage DrawImage(const ModelConfig& config, int32_t rows, int32_t columns, uint64_t seed) {
  const bool is_siglip = config.vision.family == VisionFamily::kSiglip;
  const int64_t side = config.vision.image_size;
  const int64_t count =
      is_siglip ? 3 * side * side : int64_t{rows} * columns * config.vision.patch_numbers();
  std::mt19937_64 engine(seed);
  MadeImage image;
  for (int64_t i = 0; i < count; ++i) {
    image.numbers.push_back(static_cast<float>(engine() >> 40) * 0x1p-23f - 1);
  }
  float* data = image.numbers.data();
  image.patches.pixels =
      is_siglip
          ? Tensor(data, DType::kF32, {1, 3, side, side})
          : Tensor(data, DType::kF32, {int64_t{rows} * columns, config.vision.patch_numbers()});
  if (!is_siglip) {
    image.patches.grid_h = rows;
    image.patches.grid_w = columns;
  }
  return image;
}

StatusOr<std::unique_ptr<VisionTower>> LoadMadeTower(const ModelConfig& config, Backend* backend,
                                                     RankShare share) {
  const auto weights = MakeDummyWeights(1);
  return LoadVisionTower({.config = config,
                          .limits = kMadeTowerLimits,
                          .weights = *weights,
                          .backend = *backend,
                          .share = share});
}

std::vector<float> RowsOf(VisionTower* tower, Backend* backend, const MadeImage& image) {
  const int64_t tokens = tower->NumTokens(image.patches), columns = tower->num_columns();
  const OwnedTensor out = backend->device().Allocate(DType::kF32, {tokens, columns}).value();
  const Status status = tower->Encode(image.patches, out);
  CHECK(status.ok()) << status.ToString();
  std::vector<float> rows(static_cast<size_t>(tokens * columns));
  backend->device().CopyOut(Tensor(rows.data(), DType::kF32, {tokens, columns}), out);
  return rows;
}

}  // namespace tandem
