#include "frontend/processing/image_prompt.h"

#include <nlohmann/json.hpp>
#include <string>

#include "frontend/processing/input_processor.h"
#include "proto_msgpack/multimodal.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::shared_ptr<const Tokenizer> SmallTokenizer() {
  return Tokenizer::Load(TANDEM_GOLDEN_DIR "/api/model").value();
}

// Of added tokens that the small tokenizer has: <|begin|> <|pad|> <|end|>.
constexpr char kQwenConfig[] =
    R"({"image_token_id": 1, "vision_start_token_id": 0, "vision_end_token_id": 2})";
constexpr char kGemmaConfig[] =
    R"({"image_token_index": 1, "boi_token_index": 0, "eoi_token_index": 2})";

StatusOr<ImageTokens> ReadTokens(const std::string& config, ImageFamily family) {
  const TempFolder folder;
  folder.Write("config.json", config);
  return ImageTokens::Read(folder.path(), family, *SmallTokenizer());
}

TEST_CASE("a model's image tokens are those that its config names") {
  const ImageTokens qwen = ReadTokens(kQwenConfig, ImageFamily::kQwenVl).value();
  CHECK(qwen.token == 1);
  CHECK(qwen.mark == "<|pad|>");
  CHECK(qwen.placeholder == "<|begin|><|pad|><|end|>");
  CHECK(qwen.encoded_as == "<|pad|>");
  const ImageTokens gemma = ReadTokens(kGemmaConfig, ImageFamily::kGemma3).value();
  CHECK(gemma.token == 1);
  CHECK(gemma.mark == "<|begin|>");
  CHECK(gemma.placeholder == "<|begin|>");
  CHECK(gemma.encoded_as == "\n\n<|begin|><|pad|><|end|>\n\n");
  for (const char* config : {"{}", R"({"image_token_id": -1})", R"({"image_token_id": "x"})",
                             R"({"image_token_id": 99999999})"}) {
    CHECK(ReadTokens(config, ImageFamily::kQwenVl).status().message().find("image_token_id") !=
          std::string::npos);
  }
}

ChatImage Loaded(const std::string& hash, int32_t num_tokens, size_t num_bytes = 8) {
  PreparedImage image;
  image.grid_t = 1;
  image.grid_h = 2;
  image.grid_w = 2 * num_tokens;
  image.num_tokens = num_tokens;
  image.shape = {1, static_cast<int64_t>(num_bytes / 4)};
  image.pixels = std::string(num_bytes, 'p');
  return {.url = {},
          .uuid = {},
          .hash = hash,
          .prepared = std::make_shared<const PreparedImage>(std::move(image))};
}

TEST_CASE("each image's token is repeated, and texts must not contain the mark") {
  const ImageTokens tokens = ReadTokens(kGemmaConfig, ImageFamily::kGemma3).value();
  CHECK(EncodedText("a<|begin|>b", 1, tokens).value() == "a\n\n<|begin|><|pad|><|end|>\n\nb");
  for (const size_t num_images : {size_t{0}, size_t{1}, size_t{3}}) {
    const Status status = EncodedText("<|begin|><|begin|>", num_images, tokens).status();
    CHECK(status.param() == "messages");
    CHECK(status.message().find("2 image placeholders (<|begin|>)") != std::string::npos);
  }
  std::vector<TokenId> ids = {7, 1, 8, 1, 9};
  const auto placed = PlaceImages({Loaded("a", 3), Loaded("b", 1)}, tokens, &ids).value();
  CHECK(ids == std::vector<TokenId>{7, 1, 1, 1, 8, 1, 9});
  REQUIRE(placed.size() == 2);
  CHECK(placed[0].offset == 1);
  CHECK(placed[1].offset == 5);
  std::vector<TokenId> one = {1};
  CHECK_FALSE(PlaceImages({}, tokens, &one).ok());
  CHECK_FALSE(PlaceImages({Loaded("a", 1), Loaded("b", 1)}, tokens, &one).ok());
}

InputConfig ConfigOf(const char* config, ImageFamily family) {
  InputConfig input;
  input.model = "/models/m";
  input.images.emplace();
  input.images->spec.family = family;
  input.images->spec.height = input.images->spec.width = 8;
  input.images->tokens = ReadTokens(config, family).value();
  return input;
}

constexpr char kPartsTemplate[] =
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<|pad|>{% else %}{{ c.text }}{% endif %}"
    "{% endfor %}{% endif %};{% endfor %}";
constexpr char kTextTemplate[] = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";

InputProcessor Processor(InputConfig config, const char* source) {
  return InputProcessor(std::move(config), SmallTokenizer(), ChatTemplate::Compile(source).value());
}

ChatRequest Parse(const std::string& messages, const char* more = "{}") {
  Json body = {{"messages", Json::parse(messages)}, {"max_tokens", 4}};
  body.update(Json::parse(more));
  return ParseChatRequest(std::move(body)).value();
}

constexpr char kTwoImages[] = R"([{"role": "user", "content": [
    {"type": "text", "text": "a"},
    {"type": "image_url", "image_url": {"url": "data:1", "detail": "low"}},
    {"type": "input_image", "image_url": "data:2", "uuid": "u"}]},
  {"role": "tool", "content": [{"type": "text", "text": "t"}]},
  {"role": "tool", "content": [{"type": "text", "text": "t"}, {"image_url": "data:3"}]}])";

TEST_CASE("images leave the messages, and templates see that they were there") {
  ChatRequest request = Parse(kTwoImages);
  REQUIRE(request.images.size() == 3);
  CHECK(request.images[0].url == "data:1");
  CHECK(request.images[1].url == "data:2");
  CHECK(request.images[1].uuid == "u");
  CHECK(request.images[2].url == "data:3");
  CHECK(request.has_image_detail);
  const auto processor = Processor(ConfigOf(kQwenConfig, ImageFamily::kQwenVl), kPartsTemplate);
  ChatRequest copy = request;
  CHECK(processor.RenderChat(copy).value() == "user:a<|pad|><|pad|>;tool:t;tool:t<|pad|>;");
  // A template of texts gets placeholders before them, unless they are there.
  const auto texts = Processor(ConfigOf(kQwenConfig, ImageFamily::kQwenVl), kTextTemplate);
  copy = request;
  const std::string image = "<|begin|><|pad|><|end|>";
  CHECK(texts.RenderChat(copy).value() ==
        "user:" + image + "\n" + image + "\na;tool:t;tool:" + image + "\nt;");
  ChatRequest own = Parse(R"([{"role": "user", "content": ["x <|begin|><|pad|><|end|> y",
      {"image_url": "data:1"}]}])");
  CHECK(texts.RenderChat(own).value() == "user:x " + image + " y;");
  ChatRequest alone = Parse(R"([{"role": "user", "content": [{"image_url": "data:1"}]}])");
  CHECK(texts.RenderChat(alone).value() == "user:" + image + ";");
}

TEST_CASE("parts that are no image's are refused") {
  const auto refusal = [](const char* part) {
    const auto request = ParseChatRequest(
        Json::parse(R"({"messages": [{"role": "user", "content": [)" + std::string(part) + "]}]}"));
    CHECK_FALSE(request.ok());
    return request.status().message();
  };
  CHECK(refusal(R"({"type": "image_url"})").find("must have an image_url") != std::string::npos);
  CHECK(refusal(R"({"type": "image_url", "image_url": {}})").find("must have an image_url") !=
        std::string::npos);
  CHECK(refusal(R"({"type": "image_url", "image_url": 5})").find("got an integer") !=
        std::string::npos);
  CHECK(refusal(R"({"type": "image_url", "image_url": "x", "uuid": 5})").find("uuid") !=
        std::string::npos);
  CHECK(refusal(R"({"type": "input_image", "file_id": "f"})").find("file_id") != std::string::npos);
  CHECK(refusal(R"({"type": "image"})").find("supported: text") != std::string::npos);
  CHECK(refusal(R"({"type": "video_url", "video_url": "x"})").find("image_url") !=
        std::string::npos);
  CHECK(Parse(R"([{"role": "user", "content": [{"type": "image_url", "image_url": null,
      "uuid": "u"}]}])")
            .images[0]
            .uuid == "u");
}

TEST_CASE("a model of texts, a limit and kwargs that are not trusted refuse images") {
  const auto refusal = [](InputConfig config, const char* messages, const char* more = "{}") {
    const ChatRequest request = Parse(messages, more);
    return Processor(std::move(config), kPartsTemplate).CheckImages(request);
  };
  constexpr char kText[] = R"([{"role": "user", "content": "x"}])";
  InputConfig texts;
  texts.model = "/models/m";
  CHECK(refusal(texts, kText).ok());
  CHECK(refusal(texts, kTwoImages).message() == "/models/m is not a multimodal model");
  const InputConfig config = ConfigOf(kGemmaConfig, ImageFamily::kGemma3);
  CHECK(refusal(config, kTwoImages).ok());
  InputConfig limited = config;
  limited.images->max_images = 2;
  CHECK(refusal(limited, kTwoImages).message() ==
        "At most 2 image(s) may be provided in one prompt. Set `--limit-mm-per-prompt` to increase "
        "this limit.");
  constexpr char kKwargs[] = R"({"mm_processor_kwargs": {"do_resize": true}})";
  CHECK(refusal(config, kText, kKwargs).param() == "mm_processor_kwargs");
  CHECK(refusal(config, kText, R"({"mm_processor_kwargs": {}})").ok());
  InputConfig trusting = config;
  trusting.images->trusts_kwargs = true;
  CHECK(refusal(trusting, kTwoImages, kKwargs).ok());
  const auto spec = Processor(trusting, kPartsTemplate)
                        .ImageSpecOf(Parse(kTwoImages, R"({"mm_processor_kwargs": {"no": 1}})"));
  CHECK(spec.status().param() == "mm_processor_kwargs");
  for (const char* field : {R"({"truncate_prompt_tokens": 5})", R"({"use_beam_search": true})"}) {
    CHECK(refusal(config, kTwoImages, field).message().find("with images") != std::string::npos);
  }
}

TEST_CASE("engine requests carry each image in its place, in all choices") {
  constexpr char kMessages[] = R"([{"role": "user", "content": [
      {"image_url": "data:1"}, "x", {"image_url": "data:2"}]}])";
  RequestContext context;
  context.external_id = "x";
  context.max_model_len = 100;
  for (const ImageFamily family : {ImageFamily::kQwenVl, ImageFamily::kGemma3}) {
    const bool is_qwen = family == ImageFamily::kQwenVl;
    InputConfig config = ConfigOf(is_qwen ? kQwenConfig : kGemmaConfig, family);
    config.images->max_bytes = 2 * (400 + 800);
    const auto processor =
        Processor(config, is_qwen ? kPartsTemplate
                                  : "{% for c in messages[0].content %}{{ c.text or '<|begin|>' }}"
                                    "{% endfor %}");
    ChatRequest request = Parse(kMessages, R"({"n": 2, "temperature": 1})");
    request.images = {Loaded("a", 3, 400), Loaded("b", 2, 800)};
    ChatRequest more = request;
    more.n = 3;
    const auto processed = processor.Process(std::move(request), context);
    INFO(processed.status().ToString());
    REQUIRE(processed.ok());
    CHECK(processed->num_image_tokens == 5);
    REQUIRE(processed->requests.size() == 2);
    for (const auto& sent : processed->requests) {
      const auto features = wire::DecodeFeatures(sent).value();
      REQUIRE(features.size() == 2);
      CHECK(features[0].identifier == "a");
      CHECK(features[1].mm_hash == "b");
      CHECK(features[1].length == 2);
      for (const auto& feature : features) {
        for (int32_t i = 0; i < feature.length; ++i) {
          CHECK(sent.prompt_token_ids[static_cast<size_t>(feature.offset + i)] == 1);
        }
        const auto& items = feature.data.value();
        REQUIRE(items.size() == 2);
        CHECK(items[0].key == "pixel_values");
        CHECK(items[0].tensor.dtype == "float32");
        CHECK(items[1].key == (is_qwen ? "image_grid_thw" : "num_patches"));
        CHECK(items[1].tensor.dtype == "int64");
      }
      CHECK(features[1].data->at(0).tensor.data == std::string(800, 'p'));
      CHECK(features[1].data->at(0).tensor.shape == std::vector<int64_t>{1, 200});
    }
    const Status large = processor.Process(std::move(more), context).status();
    CHECK(large.message().find("--max-image-input-bytes") != std::string::npos);
  }
}

}  // namespace
}  // namespace tandem
