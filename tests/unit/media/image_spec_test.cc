#include "media/image_spec.h"

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

// Of a model whose config.json and preprocessor_config.json are these.
StatusOr<ImageSpec> Read(const json& config, const json& preprocessor) {
  const TempFolder folder;
  folder.Write("config.json", config.dump());
  if (!preprocessor.is_null()) folder.Write("preprocessor_config.json", preprocessor.dump());
  return ReadImageSpec(folder.path());
}

json QwenConfig() {
  return json::parse(R"({"model_type": "qwen3_vl", "vision_config":
    {"patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2}})");
}

json QwenPreprocessor() {
  return json::parse(R"({"size": {"longest_edge": 16384, "shortest_edge": 4096}, "patch_size": 16,
    "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5, 0.25, 0.125],
    "image_std": [0.5, 1, 2], "image_processor_type": "Qwen2VLImageProcessorFast"})");
}

json GemmaConfig() {
  return json::parse(R"({"model_type": "gemma3", "mm_tokens_per_image": 16,
    "vision_config": {"image_size": 64, "patch_size": 8}})");
}

json GemmaPreprocessor() {
  return json::parse(R"({"do_convert_rgb": null, "do_pan_and_scan": null, "do_resize": true,
    "rescale_factor": 0.00392156862745098, "image_seq_length": 16, "resample": 2,
    "image_mean": 0.5, "image_std": [0.5, 0.5, 0.5], "size": {"height": 64, "width": 64}})");
}

TEST_CASE("a Qwen model states how it wants its images") {
  const ImageSpec spec = Read(QwenConfig(), QwenPreprocessor()).value();
  CHECK(spec.family == ImageFamily::kQwenVl);
  CHECK(spec.patch_size == 16);
  CHECK(spec.merge_size == 2);
  CHECK(spec.temporal_patch_size == 2);
  CHECK(spec.min_pixels == 4096);
  CHECK(spec.max_pixels == 16384);
  CHECK(spec.mean == std::array<float, 3>{0.5F, 0.25F, 0.125F});
  CHECK(spec.std == std::array<float, 3>{0.5F, 1, 2});
  CHECK(spec.resample == kBicubic);
  // What the file leaves out is the processor's, except what the tower's config says.
  const ImageSpec bare = Read(QwenConfig(), json::object()).value();
  CHECK(bare.patch_size == 16);
  CHECK(bare.min_pixels == 3136);
  CHECK(bare.max_pixels == 1003520);
  CHECK(bare.mean[2] == 0.40821073F);
  json older = {{"min_pixels", 784}, {"size", {{"min_pixels", 1}, {"max_pixels", 7840}}}};
  const ImageSpec two = Read(QwenConfig(), older).value();
  CHECK(two.min_pixels == 784);
  CHECK(two.max_pixels == 7840);
}

TEST_CASE("a Gemma 3 model states how it wants its images") {
  const ImageSpec spec = Read(GemmaConfig(), GemmaPreprocessor()).value();
  CHECK(spec.family == ImageFamily::kGemma3);
  CHECK(spec.height == 64);
  CHECK(spec.width == 64);
  CHECK(spec.num_tokens == 16);
  CHECK(spec.mean == std::array<float, 3>{0.5F, 0.5F, 0.5F});
  CHECK(spec.resample == kBilinear);
}

TEST_CASE("the preprocessor may lie in processor_config.json") {
  const TempFolder folder;
  folder.Write("config.json", QwenConfig().dump());
  folder.Write("processor_config.json", json{{"image_processor", QwenPreprocessor()}}.dump());
  CHECK(ReadImageSpec(folder.path()).value() == Read(QwenConfig(), QwenPreprocessor()).value());
}

TEST_CASE("a model that takes no images is not found") {
  const auto code = [](const json& config, const json& preprocessor) {
    return Read(config, preprocessor).status().code();
  };
  CHECK(code({{"model_type", "llama"}}, QwenPreprocessor()) == StatusCode::kNotFound);
  CHECK(code(QwenConfig(), nullptr) == StatusCode::kNotFound);
  CHECK(ReadImageSpec("/nowhere").status().code() == StatusCode::kNotFound);
  json other = QwenConfig();
  other["model_type"] = "llava";
  CHECK(Read(other, QwenPreprocessor()).status().message() ==
        R"(images are not supported for models of the type "llava")");
}

TEST_CASE("a preprocessor that is wrong or asks for more is refused by the key") {
  struct Case {
    const char* key;
    json value;
  };
  const Case cases[] = {
      {"patch_size", 14},
      {"patch_size", -1},
      {"merge_size", "2"},
      {"do_resize", false},
      {"do_normalize", false},
      {"rescale_factor", 1},
      {"resample", 1},
      {"image_std", {0.5, 0.0, 0.5}},
      {"image_mean", {0.5}},
      {"min_pixels", 20000},
      {"max_pixels", 0},
      {"size", 5},
      {"size", {{"shortest_edge", 1.5}}},
  };
  for (const Case& wrong : cases) {
    CAPTURE(wrong.key, wrong.value);
    json preprocessor = QwenPreprocessor();
    preprocessor[wrong.key] = wrong.value;
    const auto spec = Read(QwenConfig(), preprocessor);
    REQUIRE_FALSE(spec.ok());
    CHECK(spec.status().code() == StatusCode::kInvalidArgument);
    const std::string key = std::string(wrong.key) == "size" ? "" : wrong.key;
    CHECK(spec.status().message().find(key) != std::string::npos);
  }
  for (const Case& wrong : {Case{"do_pan_and_scan", true}, Case{"size", {{"height", 32}}},
                            Case{"image_seq_length", 4}}) {
    CAPTURE(wrong.key);
    json preprocessor = GemmaPreprocessor();
    preprocessor[wrong.key] = wrong.value;
    CHECK(Read(GemmaConfig(), preprocessor).status().code() == StatusCode::kInvalidArgument);
  }
}

TEST_CASE("mm_processor_kwargs change the limits and nothing unknown") {
  const ImageSpec qwen = Read(QwenConfig(), QwenPreprocessor()).value();
  const ImageSpec gemma = Read(GemmaConfig(), GemmaPreprocessor()).value();
  CHECK(ApplyKwargs(qwen, nullptr).value() == qwen);
  CHECK(ApplyKwargs(qwen, {{"max_pixels", nullptr}}).value() == qwen);
  CHECK(ApplyKwargs(qwen, {{"max_pixels", 8192}}).value().max_pixels == 8192);
  const ImageSpec both =
      ApplyKwargs(qwen, {{"size", {{"shortest_edge", 1}, {"longest_edge", 1024}}}}).value();
  CHECK(both.min_pixels == 1);
  CHECK(both.max_pixels == 1024);
  CHECK(ApplyKwargs(gemma, {{"do_pan_and_scan", false}}).value() == gemma);
  struct Case {
    json kwargs;
    const char* key;
  };
  const Case cases[] = {{{{"maxpixels", 1}}, "maxpixels is not known"},
                        {{{"max_pixels", 1}}, "more than max_pixels"},
                        {{{"max_pixels", uint64_t{1} << 63}}, "max_pixels must be an integer"},
                        {{{"max_pixels", "many"}}, "max_pixels must be an integer"},
                        {{{"size", {{"height", 32}}}}, "size must be an object"},
                        {{{"size", 32}}, "size must be"},
                        {{{"do_resize", false}}, "do_resize false is not supported"},
                        {"max_pixels", "must be an object"}};
  for (const Case& wrong : cases) {
    CAPTURE(wrong.key);
    const auto changed = ApplyKwargs(qwen, wrong.kwargs);
    REQUIRE_FALSE(changed.ok());
    CHECK(changed.status().param() == "mm_processor_kwargs");
    CHECK(changed.status().message().find(wrong.key) != std::string::npos);
  }
  const std::string long_text(1000, 'x');
  for (const nlohmann::json& wrong :
       {nlohmann::json{{long_text, 1}}, nlohmann::json{{"do_resize", long_text}}}) {
    CHECK(ApplyKwargs(qwen, wrong).status().message().size() < 400);
  }
  CHECK_FALSE(ApplyKwargs(gemma, {{"max_pixels", 1024}}).ok());
  CHECK_FALSE(ApplyKwargs(gemma, {{"do_pan_and_scan", true}}).ok());
}

TEST_CASE("a spec's bytes are the spec") {
  const ImageSpec qwen = Read(QwenConfig(), QwenPreprocessor()).value();
  const ImageSpec gemma = Read(GemmaConfig(), GemmaPreprocessor()).value();
  CHECK(UnpackImageSpec(PackImageSpec(qwen)).value() == qwen);
  CHECK(UnpackImageSpec(PackImageSpec(gemma)).value() == gemma);
  CHECK(PackImageSpec(qwen) != PackImageSpec(ApplyKwargs(qwen, {{"max_pixels", 8192}}).value()));
  const std::string packed = PackImageSpec(qwen);
  CHECK_FALSE(UnpackImageSpec(packed.substr(1)).ok());
  CHECK_FALSE(UnpackImageSpec(packed + "x").ok());
  CHECK_FALSE(UnpackImageSpec("").ok());
}

}  // namespace
}  // namespace tandem
