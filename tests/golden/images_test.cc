// Images against what transformers makes of them: <TANDEM_GOLDENS>/vision/images has files,
// vision/<model>/goldens.json each step's results, with a model's folder as on the hub.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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
  std::ifstream file(folder + "/goldens.json");
  return json::parse(file);
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
