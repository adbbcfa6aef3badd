// Whole models over the cuda backend on an emulated device, through scheduler and model runner,
// against the greedy text recorded from HF transformers (tests/golden/models).

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/engine_driver.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

constexpr size_t kMaxPromptLen = 17;  // an emulated device is slow
constexpr int32_t kNumTokens = 6;

void CheckGreedyText(const std::string& model, DType dtype) {
  const std::string dir = TANDEM_GOLDEN_DIR "/models/" + model;
  std::ifstream in(dir + "/goldens.json");
  REQUIRE(in);
  const json goldens = json::parse(in);
  EngineDriverOptions options;
  options.model_dir = dir;
  options.dtype = dtype;
  options.max_num_batched_tokens = 24;
  options.make_backend = [dtype] {
    return MakeEmulatedCudaBackend({.dtype = dtype, .num_threads = 1}).value();
  };
  EngineDriver engine(options);
  std::vector<json> prompts;
  for (const json& prompt : goldens["prompts"]) {
    if (prompt["prompt_ids"].size() > kMaxPromptLen) continue;
    prompts.push_back(prompt);
    engine.Add(std::to_string(prompt["index"].get<int>()),
               prompt["prompt_ids"].get<std::vector<TokenId>>(), GreedyParams(kNumTokens));
  }
  REQUIRE(prompts.size() >= 3);
  engine.RunAll();
  for (const json& prompt : prompts) {
    const int index = prompt["index"];
    CAPTURE(model, DTypeName(dtype), index);
    const Transcript& transcript = engine.transcript(std::to_string(index));
    REQUIRE(transcript.error.empty());
    REQUIRE(transcript.token_ids.size() == kNumTokens);
    const double hesitation =
        dtype == DType::kF32 ? 1e-3 : 3 * prompt["bf16_max_abs_diff"].get<double>();
    for (size_t i = 0; i < transcript.token_ids.size(); ++i) {
      if (transcript.token_ids[i] == prompt["greedy_ids"][i].get<TokenId>()) continue;
      CAPTURE(i);
      CHECK(prompt["greedy_margins"][i].get<double>() < hesitation);
      break;
    }
  }
}

}  // namespace

TEST_CASE("emulated cuda: greedy text of the golden models in float32") {
  for (const char* model : {"llama_plain", "gemma2", "gpt2", "mistral_swa", "mixtral", "olmo2",
                            "phi3_partial_rotary", "qwen2", "qwen3"}) {
    CheckGreedyText(model, DType::kF32);
  }
}

TEST_CASE("emulated cuda: greedy text of the golden models in bfloat16") {
  for (const char* model : {"llama_bias_headdim", "gemma3_text", "qwen3_moe"}) {
    CheckGreedyText(model, DType::kBf16);
  }
}

}  // namespace tandem
