// Images of requests, from the wire's form: what is taken, and what is refused for its request
// alone.

#include "engine_core/read_images.h"

#include <cstring>
#include <map>
#include <memory>

#include "common/random.h"
#include "engine_core/engine_core.h"
#include "proto_msgpack/multimodal.h"
#include "tests/simulation/sim_executor.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Feature = wire::MultiModalFeature;
using Catch::Contains;

template <class T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

constexpr TokenId kImage = 7;
const std::vector<float> kPixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
                                    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
const std::string kPixelBytes = BytesOf(kPixels);
const std::string kGridBytes = BytesOf(std::vector<int64_t>{1, 2, 4});

// Patches of three numbers, four of which make a row.
ExecutorLimits Limits() {
  ExecutorLimits limits;
  limits.max_model_len = 64;
  limits.max_num_batched_tokens = 32;
  limits.images = {.token_id = kImage, .patch_numbers = 3, .merge_size = 2};
  return limits;
}

ExecutorLimits SquareLimits() {
  ExecutorLimits limits = Limits();
  limits.images = {.token_id = kImage, .image_size = 2, .rows_per_image = 2, .are_whole = true};
  return limits;
}

Feature Qwen(int32_t offset) {
  Feature image;
  image.identifier = "hash";
  image.offset = offset;
  image.length = 2;
  image.data = {
      {"pixel_values", {"float32", {8, 3}, kPixelBytes}, "flat", wire::FlatKwargs(8)},
      {"image_grid_thw", {"int64", {3}, kGridBytes}, "batched", wire::BatchedKwargs(true)}};
  return image;
}

Feature Gemma(int32_t offset) {
  Feature image = Qwen(offset);
  image.length = 4;
  image.is_embed = {false, true, true, false};
  image.data = {{"pixel_values",
                 {"float32", {1, 3, 2, 2}, std::string_view(kPixelBytes).substr(0, 48)},
                 "flat",
                 wire::FlatKwargs(1)}};
  return image;
}

wire::EngineCoreRequest With(const std::vector<Feature>& images) {
  wire::EngineCoreRequest request;
  request.request_id = "a";
  request.prompt_token_ids = {1, kImage, kImage, 2, kImage, kImage, 3, 4};
  wire::EncodeFeatures(images, &request);
  return request;
}

TEST_CASE("images leave the message, with their pixels, places and grid") {
  wire::EngineCoreRequest request = With({Qwen(1), Qwen(4)});
  const auto images = ReadImages(Limits(), &request);
  REQUIRE(images.status().ToString() == OkStatus().ToString());
  CHECK(request.mm_features.is_nil());
  CHECK(request.aux_frames.empty());
  REQUIRE((*images)->size() == 2);
  const ImageInput& second = *(**images)[1];
  CHECK(second.identifier == "hash");
  CHECK(second.key == "hash/2");
  CHECK(second.begin == 4);
  CHECK(second.num_tokens == 2);
  CHECK(second.num_rows == 2);
  CHECK(second.grid_h == 2);
  CHECK(second.grid_w == 4);
  CHECK(second.shape == std::vector<int64_t>{8, 3});
  CHECK(second.pixels == kPixels);
  const std::vector<MultimodalItem> items = ItemsOf(images->get());
  REQUIRE(items.size() == 2);
  CHECK(items[1].Overlaps(5, 6));
  CHECK_FALSE(items[1].Overlaps(6, 9));
}

TEST_CASE("images without patches are squares, and tokens may stand around their rows") {
  wire::EngineCoreRequest request = With({Gemma(3)});
  const auto images = ReadImages(SquareLimits(), &request);
  REQUIRE(images.status().ToString() == OkStatus().ToString());
  const ImageInput& image = *(**images)[0];
  CHECK(image.begin == 3);
  CHECK(image.end() == 7);
  REQUIRE(image.runs.size() == 1);
  CHECK(image.runs[0].begin == 4);
  CHECK(image.runs[0].num_rows == 2);
  CHECK_FALSE(image.HasRowsIn(0, 4));
  CHECK(image.HasRowsIn(5, 9));
}

TEST_CASE("pixels of shorter types, inline or in a frame, become float32") {
  const std::vector<uint16_t> bfloats(24, 0x3fc0);  // 1.5
  const std::string bytes = BytesOf(bfloats);
  Feature image = Qwen(1);
  image.data->at(0).tensor = {"bfloat16", {8, 3}, bytes};
  wire::EngineCoreRequest request = With({image});
  const auto images = ReadImages(Limits(), &request);
  REQUIRE(images.ok());
  CHECK((**images)[0]->pixels == std::vector<float>(24, 1.5F));
}

TEST_CASE("a request without images, or with an empty list of them, has none") {
  wire::EngineCoreRequest request = With({});
  CHECK(*ReadImages({}, &request) == nullptr);
  request.mm_features.packed = "\x90";
  CHECK(*ReadImages({}, &request) == nullptr);
  CHECK(request.mm_features.is_nil());
}

TEST_CASE("images that do not fit their prompt or the model are refused by what is wrong") {
  const auto refusal = [](const ExecutorLimits& limits, std::vector<Feature> images,
                          StatusCode code = StatusCode::kInvalidArgument) {
    wire::EngineCoreRequest request = With(images);
    const auto read = ReadImages(limits, &request);
    REQUIRE_FALSE(read.ok());
    CHECK(read.status().code() == code);
    return read.status().message();
  };
  CHECK_THAT(refusal({}, {Qwen(1)}, StatusCode::kUnimplemented), Contains("no vision tower"));
  CHECK_THAT(refusal(Limits(), {Qwen(4), Qwen(1)}), Contains("not in the order"));
  CHECK_THAT(refusal(Limits(), {Qwen(1), Qwen(1)}), Contains("overlap"));
  CHECK_THAT(refusal(Limits(), {Qwen(7)}), Contains("tokens 7 to 8, the prompt has 8"));
  CHECK_THAT(refusal(Limits(), {Qwen(2147483647)}), Contains("the prompt has 8"));
  CHECK_THAT(refusal(Limits(), {Qwen(2)}), Contains("token 3, which is 2 and not"));

  Feature image = Qwen(1);
  image.modality = "video";
  CHECK_THAT(refusal(Limits(), {image}, StatusCode::kUnimplemented), Contains("video input"));
  image = Qwen(1);
  image.data.reset();
  CHECK_THAT(refusal(Limits(), {image}, StatusCode::kNotFound), Contains("without its data"));
  image = Qwen(1);
  image.data->pop_back();
  CHECK_THAT(refusal(Limits(), {image}), Contains("no image_grid_thw"));
  image = Qwen(1);
  image.data->erase(image.data->begin());
  CHECK_THAT(refusal(Limits(), {image}), Contains("no pixel_values"));
  image = Qwen(1);
  image.length = 4;
  image.is_embed = {true, false, false, true};
  ExecutorLimits positions = Limits();
  positions.images->have_positions = true;
  wire::EngineCoreRequest apart = With({image});
  apart.prompt_token_ids.assign(8, kImage);
  CHECK_THAT(ReadImages(positions, &apart).status().message(), Contains("side by side"));
  image = Qwen(1);
  image.identifier.assign(513, 'x');
  CHECK_THAT(refusal(Limits(), {image}), Contains("512 bytes"));
  image = Qwen(1);
  image.length = 1;
  CHECK_THAT(refusal(Limits(), {image}), Contains("1 tokens of the prompt, but has 2 rows"));
  image = Qwen(1);
  image.data->at(0).tensor.shape = {6, 4};
  CHECK_THAT(refusal(Limits(), {image}), Contains("[6, 4], their grid and this model take [8, 3]"));
  const std::string ints(96, '\0');
  image.data->at(0).tensor = {"int32", {8, 3}, ints};
  CHECK_THAT(refusal(Limits(), {image}), Contains("type int32"));
  for (const std::vector<int64_t>& grid : std::vector<std::vector<int64_t>>{
           {2, 2, 2}, {1, 1, 8}, {1, 0, 8}, {1, -2, -4}, {1, int64_t{1} << 40, 2}, {1, 2}}) {
    const std::string bytes = BytesOf(grid);
    image = Qwen(1);
    image.data->at(1).tensor = {"int64", {static_cast<int64_t>(grid.size())}, bytes};
    CHECK_THAT(refusal(Limits(), {image}), Contains("image_grid_thw is ["));
  }
  CHECK_THAT(refusal(SquareLimits(), {Qwen(1)}), Contains("this model takes [1, 3, 2, 2]"));
  const std::string two = BytesOf(std::vector<int64_t>{2});
  image = Gemma(3);
  image.data->push_back({"num_patches", {"int64", {}, two}, "batched", wire::BatchedKwargs(false)});
  CHECK_THAT(refusal(SquareLimits(), {image}, StatusCode::kUnimplemented),
             Contains("pan and scan"));

  wire::EngineCoreRequest request = With({Qwen(1)});
  request.own.num_prior_output_tokens = 6;  // outputs of an earlier run are no places of images
  CHECK_THAT(ReadImages(Limits(), &request).status().message(), Contains("the prompt has 2"));
  request = With({Qwen(1)});
  request.prompt_embeds = wire::PackedInt(1);
  CHECK_THAT(ReadImages(Limits(), &request).status().message(), Contains("prompt embeddings"));
  request = With({Qwen(1)});
  request.mm_features.packed.pop_back();
  CHECK_THAT(ReadImages(Limits(), &request).status().message(), Contains("mm_features: "));
}

TEST_CASE("recorded images have shapes in place of pixels, which only a replay takes") {
  wire::EngineCoreRequest request = With({Qwen(1)});
  const auto recorded = WithoutPixels(request);
  REQUIRE(recorded);
  CHECK(recorded->aux_frames.empty());
  CHECK(recorded->mm_features.packed.find(kPixelBytes) == std::string::npos);
  request.mm_features = recorded->mm_features;
  request.aux_frames = recorded->aux_frames;
  wire::EngineCoreRequest live = request;
  CHECK_THAT(ReadImages(Limits(), &live).status().message(), Contains("no pixel_values"));
  ExecutorLimits limits = Limits();
  limits.images->lack_pixels = true;
  const auto images = ReadImages(limits, &request);
  REQUIRE(images.status().ToString() == OkStatus().ToString());
  CHECK((**images)[0]->shape == std::vector<int64_t>{8, 3});
  CHECK((**images)[0]->pixels.empty());
  CHECK_FALSE(WithoutPixels(With({})));
}

TEST_CASE("an engine runs requests with images, and refuses one of them alone") {
  ExecutorLimits limits = Limits();
  limits.num_blocks = 33;
  limits.block_size = 4;
  limits.max_num_seqs = 4;
  limits.vocab_size = 1 << 20;
  SimExecutor executor(limits);
  ManualClock clock{10};
  const auto engine = EngineCore::Create({}, &executor, &clock);
  REQUIRE(engine.ok());
  wire::EngineCoreRequest good = With({Qwen(1), Qwen(4)});
  good.sampling_params.max_tokens = 2;
  wire::EngineCoreRequest other = good, bad = With({Qwen(2)});
  other.request_id = "b";
  bad.request_id = "bad";
  (*engine)->Handle(wire::EngineInput(good));
  (*engine)->Handle(wire::EngineInput(bad));
  (*engine)->Handle(wire::EngineInput(other));
  int num_ended = 0, num_refused = 0;
  for (int i = 0; (*engine)->HasWork(); ++i) {
    REQUIRE(i < 20);
    REQUIRE((*engine)->Step().ok());
    std::vector<ClientMessage> messages;
    (*engine)->TakeMessages(&messages);
    for (const ClientMessage& message : messages) {
      for (const auto& output : message.outputs.outputs) {
        if (!output.finish_reason) continue;
        const bool is_refused = output.finish_reason == wire::FinishReason::kError;
        CHECK(is_refused == (output.request_id == "bad"));
        (is_refused ? num_refused : num_ended) += 1;
      }
    }
  }
  CHECK(num_ended == 2);
  CHECK(num_refused == 1);
  CHECK(executor.num_encoded_images() == 1);  // all four are the same
  CHECK((*engine)->scheduler().encoder_cache().num_kept() == 2);
  (*engine)->Handle(wire::EngineInput(wire::UtilityRequest{0, 1, "reset_encoder_cache", {}}));
  CHECK((*engine)->HasWork());
  REQUIRE((*engine)->Step().ok());
  CHECK(executor.num_kept_rows() == 0);
}

// An engine whose steps have time for one slice, and what its clients have got.
class SlicingEngine {
 public:
  SlicingEngine() : executor_(SlicedLimits()) {
    EngineCoreOptions options;
    options.scheduler.image_time_limit.seconds = 1e-9;
    auto engine = EngineCore::Create(options, &executor_, &clock_);
    REQUIRE(engine.ok());
    engine_ = *std::move(engine);
  }
  void Send(const std::string& id, int32_t max_tokens, const std::vector<Feature>& images,
            TokenId first_token = 1) {
    wire::EngineCoreRequest request = With(images);
    if (images.empty()) request.prompt_token_ids = {1, 2, 3};
    request.prompt_token_ids[0] = first_token;
    request.request_id = id;
    request.sampling_params.max_tokens = max_tokens;
    engine_->Handle(wire::EngineInput(std::move(request)));
  }
  void Abort(const std::string& id) { engine_->Handle(wire::EngineInput(wire::AbortRequest{id})); }
  void Step() {
    REQUIRE(engine_->Step().ok());
    std::vector<ClientMessage> messages;
    engine_->TakeMessages(&messages);
    for (const ClientMessage& message : messages) {
      for (const auto& output : message.outputs.outputs) {
        num_tokens_[output.request_id] += static_cast<int>(output.new_token_ids.size());
      }
    }
  }
  int NumTokens(const std::string& id) { return num_tokens_[id]; }
  EngineCore& engine() { return *engine_; }
  SimExecutor& executor() { return executor_; }

  static constexpr int kNumSlices = 16;

 private:
  static ExecutorLimits SlicedLimits() {
    ExecutorLimits limits = Limits();
    limits.num_blocks = 65;
    limits.block_size = 4;
    limits.max_num_seqs = 4;
    limits.vocab_size = 1 << 20;
    limits.images->slices_per_patch = kNumSlices / 8.0;
    return limits;
  }

  SimExecutor executor_;
  ManualClock clock_{10};
  std::unique_ptr<EngineCore> engine_;
  std::map<std::string, int> num_tokens_;
};

TEST_CASE("while an image is computed in slices others decode, and later texts pass it") {
  SlicingEngine engine;
  engine.Send("stream", 60, {});
  engine.Step();
  CHECK(engine.NumTokens("stream") == 1);
  Feature image = Qwen(1);
  engine.Send("image", 2, {image});
  engine.Send("same", 2, {image}, /*first_token=*/9);
  engine.Step();
  engine.Send("late", 3, {});
  for (int i = 2; i < SlicingEngine::kNumSlices; ++i) {
    CAPTURE(i);
    engine.Step();
    CHECK(engine.NumTokens("stream") == i + 1);
    CHECK(engine.NumTokens("image") == 0);
    CHECK(engine.executor().num_encoded_images() == 0);
  }
  CHECK(engine.NumTokens("late") == 3);
  engine.Step();  // the last slice, and the prompts that read the rows
  CHECK(engine.NumTokens("image") == 1);
  CHECK(engine.NumTokens("same") == 1);
  CHECK(engine.executor().num_encoded_images() == 1);
}

TEST_CASE("an image is computed further without a stream, until its request is aborted") {
  SlicingEngine engine;
  engine.Send("image", 2, {Qwen(1)});
  for (int i = 0; i < 5; ++i) engine.Step();
  CHECK(engine.engine().HasWork());
  CHECK(engine.executor().num_continued_images() == 4);
  CHECK(engine.executor().num_kept_rows() == 2);
  engine.Abort("image");
  engine.Step();
  CHECK_FALSE(engine.engine().HasWork());
  CHECK(engine.executor().num_kept_rows() == 0);
  CHECK(engine.executor().num_continued_images() == 4);
  SECTION("another request begins with it again") {
    engine.Send("image", 1, {Qwen(1)});
    for (int i = 0; i < SlicingEngine::kNumSlices; ++i) engine.Step();
    CHECK(engine.NumTokens("image") == 1);
    engine.Step();  // frees its slot
    CHECK_FALSE(engine.engine().HasWork());
  }
  SECTION("a pause keeps it as it is") {
    engine.Send("image", 1, {Qwen(1)});
    for (int i = 0; i < 3; ++i) engine.Step();
    engine.engine().Pause(PauseMode::kKeep, /*clear_cache=*/false, {0, 1, "pause_scheduler", {}});
    engine.Step();
    CHECK_FALSE(engine.engine().HasWork());
    CHECK(engine.engine().scheduler().encoder_cache().is_under_way());
    CHECK(engine.executor().num_continued_images() == 6);
    REQUIRE(engine.engine().Resume().ok());
    for (int i = 3; i < SlicingEngine::kNumSlices; ++i) engine.Step();
    CHECK(engine.NumTokens("image") == 1);
  }
}

TEST_CASE("images without data are named, so that a frontend sends them again") {
  ExecutorLimits limits = Limits();
  limits.num_blocks = 33;
  limits.block_size = 4;
  limits.max_num_seqs = 8;
  limits.vocab_size = 1 << 20;
  SimExecutor executor(limits);
  ManualClock clock{10};
  const auto engine = EngineCore::Create({}, &executor, &clock);
  REQUIRE(engine.ok());
  Feature known = Qwen(4), named = Qwen(1);
  known.data.reset();
  named.data.reset();
  known.mm_hash = "of its bytes";
  (*engine)->Handle(wire::EngineInput(With({named, known})));
  REQUIRE((*engine)->Step().ok());
  std::vector<ClientMessage> messages;
  (*engine)->TakeMessages(&messages);
  REQUIRE(messages.size() == 1);
  REQUIRE(messages[0].outputs.outputs.size() == 1);
  const wire::EngineCoreOutput& output = messages[0].outputs.outputs[0];
  CHECK(output.finish_reason == wire::FinishReason::kError);
  CHECK(output.error->code == "multimodal_cache_miss");
  CHECK(output.error->retryable);
  CHECK(*output.mm_cache_miss_hashes == wire::PackedStrings({"hash", "of its bytes"}));
}

TEST_CASE("images property: mutated messages are read or refused, and what is read is whole") {
  constexpr uint64_t kSeed = 12;
  CAPTURE(kSeed);
  int num_read = 0;
  for (uint64_t round = 0; round < 20'000; ++round) {
    const bool is_square = round % 2 == 0;
    wire::EngineCoreRequest request = is_square ? With({Gemma(3)}) : With({Qwen(1), Qwen(4)});
    std::string& packed = request.mm_features.packed;
    for (uint64_t flips = 1 + MixBits(kSeed + round) % 2; flips > 0; --flips) {
      const uint64_t bits = MixBits(kSeed ^ (round * 8 + flips));
      packed[bits % packed.size()] = static_cast<char>(bits >> 32);
    }
    (void)WithoutPixels(request);
    const auto images = ReadImages(is_square ? SquareLimits() : Limits(), &request);
    if (!images.ok() || *images == nullptr) continue;
    ++num_read;
    int32_t end = 0;
    for (const auto& image : **images) {
      CHECK(image->begin >= end);
      end = image->end();
      int32_t num_rows = 0;
      for (const ImageInput::Run& run : image->runs) num_rows += run.num_rows;
      CHECK(num_rows == image->num_rows);
      CHECK(image->num_rows == 2);
      CHECK(image->runs.back().end() <= image->end());
      CHECK(NumBytes({image}) == static_cast<int64_t>(4 * image->pixels.size()));
    }
    CHECK(end <= 8);
  }
  CHECK(num_read > 1000);
}

TEST_CASE("images of all requests together are limited, those of a prompt's choices count once") {
  ExecutorLimits limits = Limits();
  limits.num_blocks = 33;
  limits.block_size = 4;
  limits.max_num_seqs = 8;
  limits.vocab_size = 1 << 20;
  SimExecutor executor(limits);
  ManualClock clock{10};
  EngineCoreOptions options;
  options.max_image_bytes = 150;  // an image has 96
  const auto engine = EngineCore::Create(options, &executor, &clock);
  REQUIRE(engine.ok());
  const auto add = [&](const RequestId& id, int32_t num_choices,
                       const std::vector<Feature>& images) {
    wire::EngineCoreRequest request = With(images);
    request.request_id = id;
    request.sampling_params.n = num_choices;
    (*engine)->Handle(wire::EngineInput(std::move(request)));
  };
  add("large", 1, {Qwen(1), Qwen(4)});  // alone it may be larger than the limit
  CHECK((*engine)->scheduler().num_requests() == 1);
  CHECK((*engine)->scheduler().NumImageBytes(nullptr) == 192);
  add("refused", 1, {Qwen(1)});
  CHECK((*engine)->scheduler().num_requests() == 1);
  (*engine)->Handle(wire::EngineInput(wire::AbortRequest{"large"}));
  add("0_a-b", 3, {Qwen(1)});
  const size_t num_choices = (*engine)->scheduler().num_requests();
  CHECK((*engine)->scheduler().NumImageBytes(nullptr) == 96);
  add("text", 1, {});
  CHECK((*engine)->scheduler().num_requests() == num_choices + 1);
  std::vector<ClientMessage> messages;
  REQUIRE((*engine)->Step().ok());
  (*engine)->TakeMessages(&messages);
  int num_refused = 0;
  for (const ClientMessage& message : messages) {
    for (const auto& output : message.outputs.outputs) {
      if (!output.error) continue;
      ++num_refused;
      CHECK(output.request_id == "refused");
      CHECK(output.error->retryable);
      CHECK_THAT(output.error->message, Contains("MiB of images already"));
    }
  }
  CHECK(num_refused == 1);
}

}  // namespace
}  // namespace tandem
