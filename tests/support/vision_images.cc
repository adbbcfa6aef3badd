#include "tests/support/vision_images.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/files/golden_folders.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream in(path);
  INFO(path);
  REQUIRE(in.good());
  return nlohmann::json::parse(in);
}

}  // namespace

std::vector<std::string> VisionFolders() {
  const auto whole = WholeGoldens();
  std::vector<std::string> folders;
  if (!whole) {
    WARN("skipped: the set is in TANDEM_GOLDENS alone");
    return folders;
  }
  for (const auto& entry : std::filesystem::directory_iterator(*whole + "/vision")) {
    if (HasGolden(entry.path().string(), "goldens.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  REQUIRE(folders.size() == 4);
  return folders;
}

Pixels MakePixels(const std::string& folder, const GoldenLogits& tensors, const std::string& file) {
  const nlohmann::json spec = ReadJson(folder + "/preprocessor_config.json");
  const std::vector<int64_t> shape = tensors.Shape("resized_rgb8." + file);
  const std::string rgb = tensors.Bytes("resized_rgb8." + file);
  const int64_t height = shape[0], width = shape[1];
  const auto at = [&](int64_t colour, int64_t y, int64_t x) {
    const auto value = static_cast<uint8_t>(rgb[static_cast<size_t>((y * width + x) * 3 + colour)]);
    const double mean = spec["image_mean"][static_cast<size_t>(colour)];
    const double std = spec["image_std"][static_cast<size_t>(colour)];
    return static_cast<float>((value - 255 * mean) / (255 * std));
  };
  Pixels pixels;
  if (!spec.contains("merge_size")) {
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t y = 0; y < height; ++y) {
        for (int64_t x = 0; x < width; ++x) pixels.numbers.push_back(at(c, y, x));
      }
    }
    pixels.shape = {1, 3, height, width};
    pixels.image.pixels = Tensor(pixels.numbers.data(), DType::kF32, {1, 3, height, width});
    return pixels;
  }
  const int64_t patch = spec["patch_size"], merge = spec["merge_size"];
  const int64_t rows = height / patch, columns = width / patch;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t block = i / (merge * merge), inside = i % (merge * merge);
    const int64_t top = (block / (columns / merge) * merge + inside / merge) * patch;
    const int64_t left = (block % (columns / merge) * merge + inside % merge) * patch;
    for (int64_t c = 0; c < 3; ++c) {
      for (int time = 0; time < 2; ++time) {
        for (int64_t j = 0; j < patch * patch; ++j) {
          pixels.numbers.push_back(at(c, top + j / patch, left + j % patch));
        }
      }
    }
  }
  pixels.shape = {rows * columns, 6 * patch * patch};
  pixels.image = {
      .pixels = Tensor(pixels.numbers.data(), DType::kF32, {rows * columns, 6 * patch * patch}),
      .grid_h = static_cast<int32_t>(rows),
      .grid_w = static_cast<int32_t>(columns)};
  return pixels;
}

}  // namespace tandem
