// Prompts with images against transformers' processors: <TANDEM_GOLDENS>/vision/<model> is a folder
// as on the hub, with the text after the template, its ids, and where the images' tokens are.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "frontend/processing/input_processor.h"
#include "proto_msgpack/multimodal.h"
#include "tests/support/files/golden_folders.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

std::unique_ptr<InputProcessor> MakeProcessor(const std::string& folder) {
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::Load(folder).value();
  InputConfig config;
  config.defaults = LoadModelDefaults(folder).value();
  ImageInputs images;
  images.spec = ReadImageSpec(folder).value();
  images.tokens = ImageTokens::Read(folder, images.spec.family, *tokenizer).value();
  config.images = images;
  return std::make_unique<InputProcessor>(
      config, tokenizer,
      ChatTemplate::Compile(tokenizer->chat_templates().begin()->second).value());
}

// The case's conversation, whose images are as large as recorded.
ChatRequest RequestOf(const json& golden) {
  json parts = json::array();
  for (const json& part : golden["content"]) {
    parts.push_back(part["type"] == "image"
                        ? json({{"type", "image_url"}, {"image_url", {{"url", "data:,"}}}})
                        : part);
  }
  const json body = {{"messages", {{{"role", "user"}, {"content", parts}}}}, {"max_tokens", 4}};
  ChatRequest request = ParseChatRequest(Json::parse(body.dump())).value();
  const json& ranges = golden["placeholder_ranges"];
  REQUIRE(request.images.size() == ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    PreparedImage image;
    image.num_tokens = ranges[i][1];
    image.shape = {1, 4};
    image.pixels = std::string(16, 'x');
    request.images[i].hash = "hash" + std::to_string(i);
    request.images[i].prepared = std::make_shared<const PreparedImage>(std::move(image));
  }
  return request;
}

TEST_CASE("prompts with images have the recorded text, ids and places") {
  const auto root = WholeGoldens();
  if (!root) {
    WARN("SKIPPED: TANDEM_GOLDENS is not set");
    return;
  }
  for (const char* name : {"qwen3_5_vl", "qwen3_vl", "qwen2_5_vl", "gemma3_mm"}) {
    const std::string folder = *root + "/vision/" + name;
    const auto processor = MakeProcessor(folder);
    std::ifstream file(folder + "/goldens.json");
    const json goldens = json::parse(file);
    REQUIRE(goldens["cases"].size() == 6);
    CHECK(processor->config().images->tokens.token == goldens["image_token_id"]);
    for (const json& golden : goldens["cases"]) {
      CAPTURE(name, golden["content"].dump());
      ChatRequest request = RequestOf(golden);
      ChatRequest counted = request;
      CHECK(processor->RenderChat(counted).value() == golden["prompt_text"]);
      counted = request;
      CHECK(json(processor->ChatTokens(counted).value()) == golden["prompt_ids"]);
      RequestContext context;
      context.external_id = "x";
      context.max_model_len = 2048;
      const auto processed = processor->Process(std::move(request), context);
      INFO(processed.status().ToString());
      REQUIRE(processed.ok());
      const wire::EngineCoreRequest& sent = processed->requests.at(0);
      CHECK(json(sent.prompt_token_ids) == golden["prompt_ids"]);
      json ranges = json::array();
      const auto features = wire::DecodeFeatures(sent);
      REQUIRE(features.ok());
      for (const auto& feature : *features) {
        CHECK(feature.identifier == "hash" + std::to_string(ranges.size()));
        ranges.push_back({feature.offset, feature.length});
      }
      CHECK(ranges == golden["placeholder_ranges"]);
    }
  }
}

}  // namespace
}  // namespace tandem
