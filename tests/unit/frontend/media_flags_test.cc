#include "frontend/media_flags.h"

#include <string>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Of a Gemma 3 whose image tokens are the small tokenizer's <|begin|> <|pad|> <|end|>.
StatusOr<std::optional<ImageInputs>> Inputs(const MediaFlags& flags,
                                            const std::string& model_type = "gemma3") {
  const TempFolder folder;
  folder.Write("config.json", R"({"model_type": ")" + model_type + R"(", "mm_tokens_per_image": 4,
    "image_token_index": 1, "boi_token_index": 0, "eoi_token_index": 2,
    "vision_config": {"image_size": 32, "patch_size": 8}})");
  folder.Write("preprocessor_config.json", R"({"do_resize": true, "do_rescale": true,
    "do_normalize": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    "resample": 2, "rescale_factor": 0.00392156862745098, "size": {"height": 32, "width": 32},
    "image_processor_type": "Gemma3ImageProcessor"})");
  const auto tokenizer = Tokenizer::Load(TANDEM_GOLDEN_DIR "/api/model").value();
  return ReadImageInputs(folder.path(), flags, *tokenizer);
}

TEST_CASE("a model's images are as its files and the flags say") {
  MediaFlags flags;
  const auto inputs = Inputs(flags).value();
  REQUIRE(inputs.has_value());
  CHECK(inputs->max_images == 999);
  CHECK(inputs->spec.num_tokens == 4);
  CHECK(inputs->tokens.mark == "<|begin|>");
  CHECK_FALSE(inputs->trusts_kwargs);
  CHECK_FALSE(Inputs(flags, "llama").value().has_value());
  flags.limit_mm_per_prompt = R"({"image": 3, "video": 0})";
  CHECK(Inputs(flags).value()->max_images == 3);
  flags.limit_mm_per_prompt = R"({"image": {"count": 2, "width": 9}})";
  CHECK(Inputs(flags).value()->max_images == 2);
  flags.language_model_only = true;
  CHECK(Inputs(flags).value()->max_images == 0);
  flags.mm_processor_kwargs = R"({"no_such_key": 1})";
  const Status status = Inputs(flags).status();
  CHECK(status.message().find("--mm-processor-kwargs") == 0);
  CHECK(status.message().find("no_such_key") != std::string::npos);
}

TEST_CASE("flags that ask for images are named where there are none") {
  MediaFlags flags;
  flags.limit_mm_per_prompt = R"({"image": 0})";
  CHECK(IdleMediaFlags(flags).empty());
  flags.access.domains = {"a"};
  flags.mm_processor_kwargs = "{}";
  CHECK(IdleMediaFlags(flags) ==
        std::vector<std::string_view>{"mm-processor-kwargs", "allowed-media-domains"});
}

TEST_CASE("flags of media that have no effect are refused by name") {
  const auto refusal = [](std::string MediaFlags::*flag, const char* value) {
    MediaFlags flags;
    flags.*flag = value;
    return CheckMediaFlags(flags).message();
  };
  CHECK(CheckMediaFlags({}).ok());
  CHECK(refusal(&MediaFlags::limit_mm_per_prompt, "3").find("must be a JSON object") !=
        std::string::npos);
  CHECK(refusal(&MediaFlags::limit_mm_per_prompt, R"({"image": -1})").find("of image") !=
        std::string::npos);
  CHECK(refusal(&MediaFlags::limit_mm_per_prompt, R"({"smell": 1})").find("smell") !=
        std::string::npos);
  CHECK(refusal(&MediaFlags::mm_processor_kwargs, "[]").find("--mm-processor-kwargs") == 0);
  CHECK(refusal(&MediaFlags::media_io_kwargs, R"({"video": {"num_frames": 4}})").find("video") !=
        std::string::npos);
  CHECK(refusal(&MediaFlags::media_io_kwargs, R"({"image": {"image_mode": "L"}})")
            .find("image.image_mode") != std::string::npos);
  CHECK(refusal(&MediaFlags::media_io_kwargs,
                R"({"image": {"image_mode": "RGB", "rgba_background_color": [255, 255, 255]}})")
            .empty());
}

}  // namespace
}  // namespace tandem
