// Images against what transformers makes of them: <TANDEM_GOLDENS>/vision/images has files,
// vision/<model>/goldens.json each step's results, with a model's folder as on the hub.

#include <openssl/sha.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/read_file.h"
#include "common/strings.h"
#include "media/decoder/decode_image.h"
#include "media/decoder/resize.h"
#include "media/decoder/tower_pixels.h"
#include "media/image_size.h"
#include "media/image_spec.h"
#include "tests/support/files/golden_folders.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

// Empty where TANDEM_GOLDENS is not set.
std::vector<std::string> ModelFolders() {
  const auto root = WholeGoldens();
  if (!root) {
    WARN("SKIPPED: TANDEM_GOLDENS is not set");
    return {};
  }
  std::vector<std::string> folders;
  for (const char* name : {"qwen3_5_vl", "qwen3_vl", "qwen2_5_vl", "gemma3_mm"}) {
    folders.push_back(*root + "/vision/" + name);
  }
  return folders;
}

json ReadGoldens(const std::string& folder) {
  return json::parse(ReadFile(folder + "/goldens.json", 1 << 24).value());
}

std::string Sha256(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest = {};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return HexEncode({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::string_view Bytes(const std::vector<uint8_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size()};
}

// A tensor's bytes, with a plain reader of the format.
std::string ReadTensor(const std::string& folder, const std::string& name) {
  const std::string file = ReadFile(folder + "/tensors.safetensors", int64_t{1} << 30).value();
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  const json header = json::parse(file.substr(8, header_bytes));
  const json& offsets = header[name]["data_offsets"];
  const size_t begin = offsets[0], end = offsets[1];
  return file.substr(8 + header_bytes + begin, end - begin);
}

TEST_CASE("images are decoded, resized and normalized to the recorded bits") {
  for (const std::string& folder : ModelFolders()) {
    const ImageSpec spec = ReadImageSpec(folder).value();
    const json goldens = ReadGoldens(folder);
    for (const json& image : goldens["images"]) {
      const std::string file = image["file"];
      CAPTURE(folder, file);
      const std::string bytes = ReadFile(folder + "/../images/" + file, 1 << 20).value();
      const RgbImage decoded = DecodeImage(bytes, {}).value();
      CHECK(json({decoded.size.width, decoded.size.height}) == image["decoded_size"]);
      CHECK(Sha256(Bytes(decoded.rgb)) == image["decoded_sha256_rgb8"]);
      const ImageSize size = ResizedSize(spec, decoded.size).value();
      const RgbImage resized = Resize(decoded, size, spec.resample);
      // Not as an expression of Catch, which would print the bytes.
      CHECK((Bytes(resized.rgb) == ReadTensor(folder, "resized_rgb8." + file)));
      int64_t count = 1;
      for (const int64_t length : DescribeImage(spec, size).shape) count *= length;
      std::string pixels(static_cast<size_t>(count) * sizeof(float), '\0');
      WriteTowerPixels(spec, resized,
                       {reinterpret_cast<float*>(pixels.data()), static_cast<size_t>(count)});
      CHECK(Sha256(pixels) == image["pixel_values"]["sha256_f32le"]);
    }
  }
}

TEST_CASE("images are resized to the recorded sizes and numbers of tokens") {
  for (const std::string& folder : ModelFolders()) {
    CAPTURE(folder);
    const ImageSpec spec = ReadImageSpec(folder).value();
    const json goldens = ReadGoldens(folder);
    REQUIRE(goldens["images"].size() == 6);
    for (const json& image : goldens["images"]) {
      CAPTURE(image["file"]);
      const json& from = image["decoded_size"];
      const json& to = image["resized_wh"];
      const ImageSize resized = ResizedSize(spec, {.height = from[1], .width = from[0]}).value();
      CHECK(resized == ImageSize{.height = to[1], .width = to[0]});
      const PreparedImage prepared = DescribeImage(spec, resized);
      CHECK(prepared.num_tokens == image["num_tokens"]);
      CHECK(json(prepared.shape) == image["pixel_values"]["shape"]);
      if (!image.contains("image_grid_thw")) continue;
      CHECK(json({prepared.grid_t, prepared.grid_h, prepared.grid_w}) == image["image_grid_thw"]);
    }
  }
}

}  // namespace
}  // namespace tandem
