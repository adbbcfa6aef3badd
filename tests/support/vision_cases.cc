#include "tests/support/vision_cases.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/check.h"
#include "engine_core/read_images.h"
#include "engine_core/weights/model_config.h"
#include "proto_msgpack/multimodal.h"
#include "tests/support/vision_images.h"

namespace tandem {

using nlohmann::json;

VisionCase ReadVisionCase(const std::string& folder, const GoldenLogits& tensors,
                          const ImageLimits& limits, const json& golden, bool is_inverted) {
  VisionCase one;
  one.golden = golden;
  one.id = golden["index"].dump();
  one.prompt = golden["prompt_ids"].get<std::vector<TokenId>>();
  const auto ranges = golden["placeholder_ranges"].get<std::vector<std::array<int32_t, 2>>>();
  const auto files = golden["images"].get<std::vector<std::string>>();
  CHECK_EQ(ranges.size(), files.size());
  std::vector<Pixels> pixels;
  std::vector<std::array<int64_t, 3>> grids;
  for (const std::string& file : files) {
    pixels.push_back(MakePixels(folder, tensors, file));
    for (float& number : pixels.back().numbers) number = is_inverted ? -number : number;
    const ImagePatches& image = pixels.back().image;
    grids.push_back({image.grid_t, image.grid_h, image.grid_w});
  }
  std::vector<wire::MultiModalFeature> features(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    features[i].identifier = files[i] + (is_inverted ? " inverted" : "");
    features[i].offset = ranges[i][0];
    features[i].length = ranges[i][1];
    const std::string_view numbers(reinterpret_cast<const char*>(pixels[i].numbers.data()),
                                   pixels[i].numbers.size() * sizeof(float));
    features[i].data = {{"pixel_values",
                         {"float32", pixels[i].shape, numbers},
                         "flat",
                         wire::FlatKwargs(pixels[i].shape[0])}};
    if (limits.patch_numbers == 0) continue;
    const std::string_view grid(reinterpret_cast<const char*>(grids[i].data()), sizeof(grids[i]));
    features[i].data->push_back(
        {"image_grid_thw", {"int64", {3}, grid}, "batched", wire::BatchedKwargs(true)});
  }
  wire::EngineCoreRequest request;
  request.prompt_token_ids = one.prompt;
  wire::EncodeFeatures(features, &request);
  ExecutorLimits executor;
  executor.images = limits;
  auto images = ReadImages(executor, &request);
  CHECK(images.ok()) << images.status().ToString();
  one.images = *std::move(images);
  return one;
}

std::vector<VisionCase> ReadVisionCases(const std::string& folder, double slices_per_patch) {
  const auto config = ReadModelConfig(folder);
  CHECK(config.ok()) << config.status().ToString();
  ImageLimits limits = ImageLimitsOf(config->vision).value();
  limits.slices_per_patch = std::max(limits.slices_per_patch, slices_per_patch);
  if (slices_per_patch > 0) limits.slices_per_image = 9;
  const GoldenLogits tensors(folder, "tensors.safetensors");
  std::vector<VisionCase> cases;
  const json goldens = ReadGoldens(folder);
  for (const json& golden : goldens["cases"]) {
    cases.push_back(ReadVisionCase(folder, tensors, limits, golden));
  }
  CHECK_EQ(cases.size(), size_t{6});
  return cases;
}

std::vector<float> LogitsByToken(const wire::LogprobsRows& row) {
  std::vector<float> logits(static_cast<size_t>(row.num_columns - 1));
  for (size_t i = 0; i < row.token_ids.size(); ++i) {
    logits[static_cast<size_t>(row.token_ids[i])] = row.logprobs[i];
  }
  return logits;
}

}  // namespace tandem
