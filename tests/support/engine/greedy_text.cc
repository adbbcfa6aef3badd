#include "tests/support/engine/greedy_text.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/engine/golden_logits.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

constexpr size_t kMaxPromptLen = 17;  // an emulated device is slow
constexpr int32_t kNumTokens = 6;

}  // namespace

void CheckGreedyText(EngineDriverOptions options, const std::string& folder) {
  const json goldens = ReadGoldens(folder);
  options.model_dir = folder;
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
    CAPTURE(folder, DTypeName(options.dtype), options.ranks.tensor, index);
    const Transcript& transcript = engine.transcript(std::to_string(index));
    REQUIRE(transcript.error.empty());
    REQUIRE(transcript.token_ids.size() == kNumTokens);
    const double hesitation =
        options.dtype == DType::kF32 ? 1e-3 : 3 * prompt["bf16_max_abs_diff"].get<double>();
    for (size_t i = 0; i < transcript.token_ids.size(); ++i) {
      if (transcript.token_ids[i] == prompt["greedy_ids"][i].get<TokenId>()) continue;
      CAPTURE(i);
      CHECK(prompt["greedy_margins"][i].get<double>() < hesitation);
      break;
    }
  }
}

}  // namespace tandem
