// Images of a request: vLLM's form, what comes back, and what is refused.

#include "proto_msgpack/multimodal.h"

#include "common/random.h"
#include "tests/support/wire_json.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

constexpr uint64_t kSeed = 20'26;

std::string Bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(MixBits(i));
  return bytes;
}

const std::string kPixels = Bytes(4 * 4 * 24);
const std::string kGrid = Bytes(3 * 8);
const std::string kOne = Bytes(8);

MultiModalFeature QwenImage() {
  MultiModalFeature image;
  image.identifier = image.mm_hash.emplace("0a1b");
  image.offset = 5;
  image.length = 1;
  image.data = {{"pixel_values", {"float32", {4, 24}, kPixels}, "flat", FlatKwargs(4)},
                {"image_grid_thw", {"int64", {3}, kGrid}, "batched", BatchedKwargs(true)}};
  return image;
}

MultiModalFeature GemmaImage() {
  MultiModalFeature image;
  image.identifier = "lora:77";
  image.mm_hash = "77";
  image.offset = 9;
  image.length = 4;
  image.is_embed = {false, true, true, false};
  image.data = {{"pixel_values", {"float32", {1, 3, 4, 8}, kPixels}, "flat", FlatKwargs(1)},
                {"num_patches", {"int64", {}, kOne}, "batched", BatchedKwargs(false)}};
  return image;
}

EngineCoreRequest With(const std::vector<MultiModalFeature>& features) {
  EngineCoreRequest request;
  request.request_id = "a";
  EncodeFeatures(features, &request);
  return request;
}

TEST_CASE("multimodal: the form is that of vLLM's encoder") {
  const EngineCoreRequest request = With({QwenImage()});
  const nlohmann::json json = ToJson(request.mm_features.packed);
  REQUIRE(json.size() == 1);
  const nlohmann::json& image = json[0];
  CHECK(request.mm_features.packed.substr(0, 7) ==
        "\x91\x85\xa4"
        "data");
  CHECK(image["modality"] == "image");
  CHECK(image["identifier"] == "0a1b");
  CHECK(image["mm_hash"] == "0a1b");
  CHECK(image["mm_position"] ==
        nlohmann::json({{"offset", 5}, {"length", 1}, {"is_embed", nullptr}}));
  const nlohmann::json& pixels = image["data"]["pixel_values"];
  CHECK(pixels["data"] == nlohmann::json::parse(R"(["float32", [4, 24], 1])"));
  CHECK(pixels["field"] ==
        nlohmann::json::parse(
            R"(["flat", {"keep_on_cpu": false, "slices": [[[0, 4, null]]], "dim": 0}])"));
  const nlohmann::json& grid = image["data"]["image_grid_thw"];
  CHECK(grid["data"][0] == "int64");
  CHECK(grid["data"][1] == nlohmann::json({3}));
  REQUIRE(grid["data"][2].is_binary());
  CHECK(grid["data"][2].get_binary().subtype() == 3);
  CHECK(grid["field"] == nlohmann::json::parse(R"(["batched", {"keep_on_cpu": true}])"));
  REQUIRE(request.aux_frames.size() == 1);
  CHECK(request.aux_frames[0] == kPixels);
}

TEST_CASE("multimodal: images come back as they were sent, over the wire too") {
  const std::vector<MultiModalFeature> images = {QwenImage(), GemmaImage(), QwenImage()};
  EngineCoreRequest request;
  request.request_id = "a";
  request.aux_frames = {"of another tensor"};
  EncodeFeatures(images, &request);
  EncodedMessage message;
  Encode(request, &message);
  const auto input = DecodeInput(static_cast<uint8_t>(RequestType::kAdd), Views(message));
  REQUIRE(input.ok());
  const auto& received = std::get<EngineCoreRequest>(*input);
  const auto features = DecodeFeatures(received);
  REQUIRE(features.ok());
  CHECK(*features == images);
  // A view of the frame, not a copy.
  CHECK((*features)[0].data->at(0).tensor.data.data() == received.aux_frames[1].data());
}

TEST_CASE("multimodal: none, and an item that the engine is thought to have") {
  EngineCoreRequest request = With({});
  CHECK(request.mm_features.is_nil());
  CHECK(DecodeFeatures(request)->empty());
  request.mm_features.packed = "\x90";
  CHECK(DecodeFeatures(request)->empty());
  request.mm_features.packed = "\xc0";
  CHECK(DecodeFeatures(request)->empty());
  MultiModalFeature known = QwenImage();
  known.data.reset();
  request = With({known});
  REQUIRE(DecodeFeatures(request).ok());
  CHECK((*DecodeFeatures(request))[0] == known);
}

TEST_CASE("multimodal: what contradicts itself is refused") {
  const auto refusal = [](const std::vector<MultiModalFeature>& images, auto change) {
    EngineCoreRequest request = With(images);
    change(&request);
    const auto features = DecodeFeatures(request);
    REQUIRE_FALSE(features.ok());
    CHECK(features.status().code() == StatusCode::kInvalidArgument);
    return features.status().message();
  };
  const auto nothing = [](EngineCoreRequest*) {};
  const auto replace = [](const std::string& from, const std::string& to) {
    return [=](EngineCoreRequest* request) {
      std::string& packed = request->mm_features.packed;
      REQUIRE(packed.find(from) != std::string::npos);
      packed.replace(packed.find(from), from.size(), to);
    };
  };
  using Catch::Contains;
  MultiModalFeature image = QwenImage();
  image.length = 0;
  CHECK_THAT(refusal({image}, nothing), Contains("out of range"));
  image = QwenImage();
  image.offset = -1;
  CHECK_THAT(refusal({image}, nothing), Contains("out of range"));
  image = QwenImage();
  image.identifier.clear();
  CHECK_THAT(refusal({image}, nothing), Contains("without modality, identifier"));
  image = GemmaImage();
  image.length = 3;
  CHECK_THAT(refusal({image}, nothing), Contains("an entry for each position"));
  const std::vector<MultiModalFeature> one = {QwenImage()};
  CHECK_THAT(refusal(one, replace("float32", "float16")), Contains("contradict"));
  CHECK_THAT(refusal(one, replace("float32", "quint32")), Contains("contradict"));
  CHECK_THAT(refusal(one, [](auto* r) { r->aux_frames[0].pop_back(); }), Contains("contradict"));
  CHECK_THAT(refusal(one, [](auto* r) { r->aux_frames.clear(); }), Contains("not there"));
  CHECK_THAT(refusal(one, [](auto* r) { r->mm_features.packed += '\xc0'; }),
             Contains("bytes after"));
  // Sizes whose product wraps around to what is there.
  CHECK_THAT(refusal(one, replace(std::string("\x92\x04\x18", 3),
                                  std::string("\x94\xce\x40\x00\x00\x00\xce\x40\x00\x00\x00\xce"
                                              "\x40\x00\x00\x00\x04",
                                              17))),
             Contains("contradict"));
}

TEST_CASE(
    "multimodal property: cut, flipped and random bytes are decoded or refused, never worse") {
  CAPTURE(kSeed);
  const EngineCoreRequest whole = With({QwenImage(), GemmaImage()});
  for (size_t size = 1; size < whole.mm_features.packed.size(); ++size) {
    EngineCoreRequest cut = whole;
    cut.mm_features.packed.resize(size);
    CHECK_FALSE(DecodeFeatures(cut).ok());
  }
  int num_decoded = 0;
  for (uint64_t round = 0; round < 20'000; ++round) {
    EngineCoreRequest request = whole;
    std::string& packed = request.mm_features.packed;
    for (uint64_t flips = 1 + MixBits(kSeed + round) % 3; flips > 0; --flips) {
      const uint64_t bits = MixBits(kSeed ^ (round * 8 + flips));
      packed[bits % packed.size()] = static_cast<char>(bits >> 32);
    }
    const auto features = DecodeFeatures(request);
    if (!features.ok()) continue;
    ++num_decoded;
    // What is accepted is sent and read again unchanged.
    EngineCoreRequest again;
    EncodeFeatures(*features, &again);
    const auto read = DecodeFeatures(again);
    REQUIRE(read.ok());
    CHECK(*read == *features);
  }
  CHECK(num_decoded > 100);
}

}  // namespace
}  // namespace tandem::wire
