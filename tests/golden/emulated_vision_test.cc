// Vision towers over the cuda backend on an emulated device: those of made-up weights against the
// cpu backend, and with the texts behind them, through scheduler and model runner, against numbers
// recorded from HF transformers: the set `vision`, which lies in TANDEM_GOLDENS alone.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/made_towers.h"
#include "tests/support/vision_cases.h"
#include "tests/support/vision_images.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr double kTolerance = 2e-3;
constexpr int32_t kNumTokens = 8;

EngineDriverOptions Options(const std::string& folder, DType dtype) {
  EngineDriverOptions options;
  options.model_dir = folder;
  options.dtype = dtype;
  options.logprobs_mode = LogprobsMode::kRawLogits;
  options.make_backend = [dtype] {
    return MakeEmulatedCudaBackend({.dtype = dtype, .num_threads = 1}).value();
  };
  return options;
}

void Add(EngineDriver* engine, const VisionCase& one, const wire::SamplingParams& params) {
  engine->Add(one.id, one.prompt, params, 0, {}, one.images);
}

// The first tokens that are recorded.
std::vector<TokenId> Expected(const VisionCase& one) {
  auto ids = one.golden["greedy_ids"].get<std::vector<TokenId>>();
  ids.resize(kNumTokens);
  return ids;
}

// The difference of the logits after a prompt to those recorded.
double FirstDifference(const std::string& folder, const VisionCase& one,
                       const Transcript& transcript) {
  REQUIRE(transcript.error.empty());
  REQUIRE(transcript.rows.size() == kNumTokens);
  const GoldenLogits tensors(folder, "tensors.safetensors");
  const std::vector<float> expected = tensors.Get("f32." + one.id);
  return MaxDifference(LogitsByToken(transcript.rows[0]), expected.data());
}

// With windows, several runs of windows, deepstack, learned positions and pooling.
TEST_CASE("emulated cuda: the rows of a tower are those of the cpu backend") {
  const std::string architecture =
      GENERATE("Qwen3VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration",
               "Gemma3ForConditionalGeneration");
  const DType dtype = GENERATE(DType::kF32, DType::kBf16);
  CAPTURE(architecture, dtype);
  const auto config = ParseModelConfig(MadeTowerConfig(architecture).dump(), "");
  REQUIRE(config.ok());
  const auto cpu = MakeTestBackend(/*reference=*/false, dtype, 1);
  const auto cuda = MakeEmulatedCudaBackend({.dtype = dtype, .num_threads = 1}).value();
  const auto ours = LoadMadeTower(*config, cuda.get()), other = LoadMadeTower(*config, cpu.get());
  REQUIRE(ours.ok());
  REQUIRE(other.ok());
  for (const int32_t height : {4, 18}) {
    CAPTURE(height);
    const MadeImage image = DrawImage(*config, height, 14, 1);
    const std::vector<float> rows = RowsOf(ours->get(), cuda.get(), image);
    const std::vector<float> expected = RowsOf(other->get(), cpu.get(), image);
    REQUIRE(rows.size() == expected.size());
    float most = 0;
    for (const float number : expected) most = std::max(most, std::abs(number));
    const double worst = MaxDifference(rows, expected.data());
    CHECK(worst <= (dtype == DType::kF32 ? 1e-4 : 0.03) * most);
  }
}

// Each case alone, with all of its logits.
template <class Check>
void ForEachCase(DType dtype, const Check& check) {
  for (const std::string& folder : VisionFolders()) {
    EngineDriver engine(Options(folder, dtype));
    wire::SamplingParams params = GreedyParams(kNumTokens);
    params.logprobs = -1;
    for (const VisionCase& one : ReadVisionCases(folder)) {
      CAPTURE(folder, one.id);
      Add(&engine, one, params);
      engine.RunAll();
      check(folder, one, engine.transcript(one.id));
    }
  }
}

TEST_CASE("emulated cuda: logits and greedy tokens of texts with images are HF's in float32") {
  ForEachCase(DType::kF32,
              [](const std::string& folder, const VisionCase& one, const Transcript& transcript) {
                CHECK(FirstDifference(folder, one, transcript) <= kTolerance);
                CHECK(transcript.token_ids == Expected(one));
              });
}

// Decode steps of requests with images are replayed, too, with the positions that images left.
TEST_CASE(
    "emulated cuda: in chunks, in slices, beside others, overlapped and replayed texts with images "
    "have the same tokens") {
  for (const std::string& folder : VisionFolders()) {
    CAPTURE(folder);
    const std::vector<VisionCase> cases = ReadVisionCases(folder, 0.3);
    EngineDriverOptions options = Options(folder, DType::kF32);
    options.max_num_batched_tokens = 24;  // images have up to 16
    options.block_size = 16;
    options.max_num_seqs = 6;
    options.graph_sizes = {1, 2, 4, 6};
    options.async_scheduling = true;
    options.slices_images = true;
    EngineDriver engine(options);
    for (const VisionCase& one : cases) Add(&engine, one, GreedyParams(kNumTokens));
    engine.RunAll();
    for (const VisionCase& one : cases) {
      CAPTURE(one.id);
      CHECK(engine.transcript(one.id).error.empty());
      CHECK(engine.transcript(one.id).token_ids == Expected(one));
    }
    CHECK(engine.runner().num_replays() > 5);
    CHECK(engine.runner().num_overlapped() > 5);
    CHECK(engine.scheduler().encoder_cache().num_held() == 0);
    // All alone, so that every step of it that decodes is a replay.
    const int64_t num_before = engine.runner().num_replays();
    engine.Forget();
    Add(&engine, cases[0], GreedyParams(kNumTokens));
    engine.RunAll();
    CHECK(engine.transcript(cases[0].id).token_ids == Expected(cases[0]));
    CHECK(engine.runner().num_replays() - num_before == kNumTokens - 1);
  }
}

TEST_CASE("emulated cuda: texts with images are as near to HF's in bfloat16 as its own") {
  ForEachCase(DType::kBf16, [](const std::string& folder, const VisionCase& one,
                               const Transcript& transcript) {
    // A state carries roundings from token to token, as in models_test.cc.
    const bool has_states = folder.find("qwen3_5") != std::string::npos;
    CHECK(FirstDifference(folder, one, transcript) <=
          (has_states ? 3.5 : 2) * one.golden["bf16_max_abs_diff"].get<double>() + 0.05);
  });
}

}  // namespace
}  // namespace tandem
