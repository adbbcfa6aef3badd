// Every model of the sets `models` and `models2`, split over ranks in every way: the bits are those
// of one rank, which models_test.cc holds to the recorded numbers. Ranks are threads here.

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/kv_cache/prompt_embeddings.h"
#include "engine_core/models/rank_share.h"
#include "engine_core/speculation/speculative_config.h"
#include "engine_core/weights/dummy_weights.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/golden_logits.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/files/temp_folder.h"
#include "tests/support/state_models.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

struct Split {
  RankCounts ranks;
  bool splits_experts = false;
};

constexpr Split kTwoShares = {.ranks = {.tensor = 2}};
constexpr Split kTwoSharesOfExperts = {.ranks = {.tensor = 2}, .splits_experts = true};
constexpr Split kFourShares = {.ranks = {.tensor = 4}};
constexpr Split kFourSharesOfExperts = {.ranks = {.tensor = 4}, .splits_experts = true};
constexpr Split kTwoStages = {.ranks = {.pipeline = 2}};
constexpr Split kThreeStages = {.ranks = {.pipeline = 3}};
constexpr Split kFourStages = {.ranks = {.pipeline = 4}};
constexpr Split kBoth = {.ranks = {.tensor = 2, .pipeline = 2}};

std::vector<Transcript> RunAllPrompts(const std::string& folder, const json& goldens,
                                      const EngineDriverOptions& base, const Split& split) {
  EngineDriverOptions options = base;
  options.model_dir = folder;
  options.max_num_batched_tokens = 96;
  options.ranks = split.ranks;
  options.splits_experts = split.splits_experts;
  EngineDriver engine(options);
  for (const json& prompt : goldens["prompts"]) {
    wire::SamplingParams params = GreedyParams(goldens["n_greedy"]);
    params.logprobs = 5;
    if (prompt["index"].get<int>() % 2 == 1) {
      params.prompt_logprobs = 3;
      params.skip_reading_prefix_cache = true;
      params.temperature = 0.8;
      params.seed = 7;
    }
    engine.Add(std::to_string(prompt["index"].get<int>()),
               prompt["prompt_ids"].get<std::vector<TokenId>>(), params);
  }
  engine.RunAll();
  std::vector<Transcript> transcripts;
  for (const json& prompt : goldens["prompts"]) {
    transcripts.push_back(engine.transcript(std::to_string(prompt["index"].get<int>())));
  }
  return transcripts;
}

bool SameBits(const wire::LogprobsRows& a, const wire::LogprobsRows& b) {
  return a.num_rows == b.num_rows && a.num_columns == b.num_columns && a.token_ids == b.token_ids &&
         a.ranks == b.ranks &&
         std::equal(a.logprobs.begin(), a.logprobs.end(), b.logprobs.begin(), b.logprobs.end(),
                    [](float x, float y) {
                      return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
                    });
}

void CheckSame(const std::vector<Transcript>& expected, const std::vector<Transcript>& got) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i, got[i].error);
    REQUIRE(expected[i].error.empty());
    CHECK(got[i].token_ids == expected[i].token_ids);
    REQUIRE(got[i].rows.size() == expected[i].rows.size());
    for (size_t row = 0; row < got[i].rows.size(); ++row) {
      CAPTURE(row);
      CHECK(SameBits(got[i].rows[row], expected[i].rows[row]));
    }
    CHECK(SameBits(got[i].prompt_logprobs, expected[i].prompt_logprobs));
  }
}

std::string NameOf(const std::string& folder) { return folder.substr(folder.rfind('/') + 1); }

bool IsMixture(const std::string& folder) { return ReadModelConfig(folder)->num_experts > 0; }

int64_t EndOfTensors(EngineDriver& engine) {
  return engine.group() == nullptr ? 0 : engine.group()->communicator()->end();
}

// Runs the whole models and each way of splitting them.
void CheckSplits(const EngineDriverOptions& base, const std::vector<Split>& splits,
                 const std::vector<std::string>& only = {}) {
  for (const std::string& folder : GoldenModels(TANDEM_GOLDEN_DIR)) {
    const std::string name = NameOf(folder);
    if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) continue;
    const json goldens = ReadGoldens(folder);
    const StatusOr<ModelConfig> config = ReadModelConfig(folder);
    REQUIRE(config.ok());
    const bool is_mixture = IsMixture(folder);
    const std::vector<Transcript> expected = RunAllPrompts(folder, goldens, base, {});
    for (const Split& split : splits) {
      if (split.splits_experts && !is_mixture) continue;
      // Three heads, say.
      if (!CheckRanks(*config, {.tensor_parallel_size = split.ranks.tensor,
                                .pipeline_parallel_size = split.ranks.pipeline,
                                .splits_experts = split.splits_experts})
               .ok()) {
        continue;
      }
      CAPTURE(name, split.ranks.tensor, split.ranks.pipeline, split.splits_experts);
      CheckSame(expected, RunAllPrompts(folder, goldens, base, split));
    }
  }
}

TEST_CASE("ranks: all models have the same bits with 2 ranks that share each layer") {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    CAPTURE(DTypeName(dtype));
    EngineDriverOptions options;
    options.dtype = dtype;
    CheckSplits(options, {kTwoShares, kTwoSharesOfExperts});
  }
}

TEST_CASE("ranks: all models have the same bits in 2 stages, and with 2 ranks in each") {
  EngineDriverOptions options;
  options.dtype = DType::kBf16;
  CheckSplits(options, {kTwoStages, kBoth});
}

TEST_CASE("ranks: all models have the same bits after a sleep as before it, however often") {
  for (const Split& split : {Split{}, kTwoSharesOfExperts, kBoth}) {
    for (const std::string& folder : GoldenFolders(TANDEM_GOLDEN_DIR, "models", "goldens.json")) {
      const json goldens = ReadGoldens(folder);
      EngineDriverOptions options;
      options.dtype = DType::kBf16;
      options.model_dir = folder;
      options.ranks = split.ranks;
      options.splits_experts = split.splits_experts && IsMixture(folder);
      options.can_sleep = true;
      CAPTURE(folder, split.ranks.tensor, split.ranks.pipeline);
      EngineDriver engine(options);
      std::vector<Transcript> expected;
      for (const bool rereads : {true, false, true}) {
        const MemoryParts all = {.weights = true, .kv_cache = true};
        const int64_t end = EndOfTensors(engine);
        for (const json& prompt : goldens["prompts"]) {
          wire::SamplingParams params = GreedyParams(goldens["n_greedy"]);
          params.logprobs = 2;
          engine.Add(std::to_string(prompt["index"].get<int>()),
                     prompt["prompt_ids"].get<std::vector<TokenId>>(), params);
        }
        engine.RunAll();
        std::vector<Transcript> got;
        for (const json& prompt : goldens["prompts"]) {
          got.push_back(engine.transcript(std::to_string(prompt["index"].get<int>())));
        }
        if (expected.empty()) expected = got;
        CheckSame(expected, got);
        engine.Forget();
        REQUIRE(engine.scheduler().ResetPrefixCache(/*preempt_running=*/false, 0));
        REQUIRE(engine.runner().Release(all, rereads).ok());
        REQUIRE(engine.runner().Restore({.kv_cache = true}).ok());
        REQUIRE(engine.runner().Restore({.weights = true}).ok());
        CHECK(EndOfTensors(engine) == end);
      }
    }
  }
}

TEST_CASE("ranks: more ranks than key-value heads hold copies of them") {
  EngineDriverOptions options;
  options.dtype = DType::kBf16;
  CheckSplits(options, {kFourShares, kFourSharesOfExperts},
              {"llama_plain", "olmo2", "gemma2", "gpt2", "qwen3_moe", "deepseek_v2", "kimi_linear",
               "mamba2", "nemotron_h"});
}

TEST_CASE("ranks: integer weights and an int8 KV cache, which are quantized by rows, as well") {
  for (const char* quantization : {"int8", "int4"}) {
    CAPTURE(quantization);
    EngineDriverOptions options;
    options.dtype = DType::kBf16;
    options.formats = WeightFormatsOf(quantization);
    options.kv_format = KvFormat::kInt8;
    CheckSplits(options, {kTwoShares},
                {"llama_plain", "gpt2", "phi3_partial_rotary", "mixtral", "deepseek_v2", "lfm2",
                 "qwen3_5_text"});
  }
}

TEST_CASE("ranks: an int4 KV cache, whose heads are rounded one by one") {
  EngineDriverOptions options;
  options.dtype = DType::kBf16;
  options.kv_format = KvFormat::kInt4;
  CheckSplits(options, {kTwoShares}, {"llama_plain", "gemma2", "deepseek_v2"});
}

// Four, each longer than the one before it by `step` tokens, of ids from 3 to num_ids + 2.
json MadeUpPrompts(int step, int num_ids) {
  json prompts = {{"n_greedy", 8}, {"prompts", json::array()}};
  for (int index = 0; index < 4; ++index) {
    json ids = json::array();
    for (int i = 0; i < 3 + step * index; ++i) ids.push_back(3 + (37 * i + 11 * index) % num_ids);
    prompts["prompts"].push_back({{"index", index}, {"prompt_ids", ids}});
  }
  return prompts;
}

// A matrix whose columns share scales, or come in blocks, is cut between its rows alone.
TEST_CASE("ranks: checkpoints that come quantized, and GGUF files") {
  const json prompts = MadeUpPrompts(9, 300);
  int num_models = 0;
  for (const std::string& folder : GoldenFolders(TANDEM_GOLDEN_DIR, "quantized", "goldens.json")) {
    const std::string file = folder + "/model.gguf";
    const std::string model = std::filesystem::exists(file) ? file : folder;
    const bool is_mixture = folder.find("moe") != std::string::npos;
    CAPTURE(model);
    for (const char* quantization : {"none", "auto"}) {
      CAPTURE(quantization);
      EngineDriverOptions options;
      options.formats = WeightFormatsOf(quantization);
      const std::vector<Transcript> expected = RunAllPrompts(model, prompts, options, {});
      CheckSame(expected, RunAllPrompts(model, prompts, options, kTwoShares));
      if (!is_mixture) continue;
      CheckSame(expected, RunAllPrompts(model, prompts, options, kTwoSharesOfExperts));
    }
    ++num_models;
  }
  CHECK(num_models > 10);
}

// Scans with a norm whose groups are on several ranks, beside attention, and Mamba's, with made up
// weights; a delta rule whose key heads take turns, as in GGUF files.
TEST_CASE("ranks: states of kinds that no recorded model of the smaller set has") {
  const json prompts = MadeUpPrompts(19, 500);
  std::vector<std::string> configs;
  for (const std::string_view model : kStateModels) configs.push_back(ConfigOfStateModel(model));
  for (const char* takes_turns : {"false", "true"}) {
    configs.push_back(ConfigOfStateModel(
        std::string(R"("architectures": ["Qwen3_5ForCausalLM"], "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 4,
            "linear_num_value_heads": 8, "linear_key_head_dim": 32, "linear_value_head_dim": 16,
            "linear_key_heads_take_turns": )") +
        takes_turns));
  }
  for (const std::string& config : configs) {
    CAPTURE(config);
    const TempFolder folder;
    folder.Write("config.json", config);
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const auto weights = MakeDummyWeights(31);
      EngineDriverOptions options;
      options.dtype = dtype;
      options.weights = weights.get();
      const std::vector<Transcript> expected = RunAllPrompts(folder.path(), prompts, options, {});
      for (const Split& split : {kTwoShares, kFourShares, kBoth}) {
        CAPTURE(split.ranks.tensor, split.ranks.pipeline);
        CheckSame(expected, RunAllPrompts(folder.path(), prompts, options, split));
      }
    }
  }
}

// Windows in every second layer, with made up weights: heads that differ, inputs of layers, layers
// that share; and mixtures beside MLPs, whose keys are values.
TEST_CASE("ranks: layers that differ in their heads") {
  const json prompts = MadeUpPrompts(19, 500);
  const std::string model = R"({"architectures": ["Gemma4ForCausalLM"], "vocab_size": 515,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6, "sliding_window": 40,
      "sliding_window_pattern": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 16, "global_head_dim": 48, "max_position_embeddings": 1024,
      "tie_word_embeddings": true, "vocab_size_per_layer_input": 520, )";
  for (const char* more : {R"("num_kv_shared_layers": 2, "use_double_wide_mlp": true,
                              "hidden_size_per_layer_input": 24, "final_logit_softcapping": 2})",
                           R"("attention_k_eq_v": true, "num_global_key_value_heads": 1,
                              "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2,
                              "moe_intermediate_size": 32, "hidden_size_per_layer_input": 0})"}) {
    CAPTURE(more);
    const TempFolder folder;
    folder.Write("config.json", model + more);
    const auto weights = MakeDummyWeights(37);
    for (const char* quantization : {"none", "int8"}) {
      EngineDriverOptions options;
      options.dtype = DType::kBf16;
      options.formats = WeightFormatsOf(quantization);
      options.weights = weights.get();
      const std::vector<Transcript> expected = RunAllPrompts(folder.path(), prompts, options, {});
      for (const Split& split :
           {kTwoShares, kTwoSharesOfExperts, kFourShares, kTwoStages, kThreeStages, kBoth}) {
        if (split.splits_experts && !IsMixture(folder.path())) continue;
        CAPTURE(split.ranks.tensor, split.ranks.pipeline, split.splits_experts);
        CheckSame(expected, RunAllPrompts(folder.path(), prompts, options, split));
      }
    }
  }
}

// Prompts of ids and of rows in turns; the embedding has a norm, or has none.
TEST_CASE("ranks: rows in the place of embeddings") {
  for (const char* architecture : {"BloomForCausalLM", "LlamaForCausalLM"}) {
    const TempFolder folder;
    folder.Write("config.json", R"({"architectures": [")" + std::string(architecture) + R"("],
        "vocab_size": 515, "hidden_size": 64, "intermediate_size": 256, "n_layer": 3, "n_head": 4,
        "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 512})");
    const auto weights = MakeDummyWeights(41);
    auto embeddings = std::make_shared<PromptEmbeddings>();
    embeddings->num_columns = 64;
    embeddings->runs = {{.begin = 3, .num_rows = 9}, {.begin = 20, .num_rows = 30}};
    std::vector<float> rows(39 * 64);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
    embeddings->data.assign(reinterpret_cast<const char*>(rows.data()),
                            rows.size() * sizeof(float));
    const auto run = [&](const RankCounts& ranks) {
      EngineDriverOptions options;
      options.model_dir = folder.path();
      options.weights = weights.get();
      options.dtype = DType::kBf16;
      options.max_num_batched_tokens = 24;
      options.ranks = ranks;
      EngineDriver engine(options);
      for (const char* id : {"rows", "ids"}) {
        wire::EngineCoreRequest request;
        request.request_id = id;
        for (int i = 0; i < 55; ++i) {
          const bool is_row = id[0] == 'r' && ((i >= 3 && i < 12) || (i >= 20 && i < 50));
          request.prompt_token_ids.push_back(is_row ? 0 : 3 + i * 7 % 500);
        }
        request.sampling_params = GreedyParams(8);
        request.sampling_params.logprobs = 5;
        RequestNeeds needs;
        if (id[0] == 'r') needs.embeddings = embeddings;
        REQUIRE(engine.scheduler().Add(std::move(request), 0, std::move(needs)).ok());
      }
      engine.RunAll();
      return std::vector<Transcript>{engine.transcript("rows"), engine.transcript("ids")};
    };
    const std::vector<Transcript> expected = run({});
    CHECK(expected[0].token_ids.size() == 8);
    for (const RankCounts& ranks : {RankCounts{2, 1}, RankCounts{1, 3}, RankCounts{2, 2}}) {
      CAPTURE(architecture, ranks.tensor, ranks.pipeline);
      CheckSame(expected, run(ranks));
    }
  }
}

TEST_CASE("ranks: the reference backend") {
  EngineDriverOptions options;
  options.reference_backend = true;
  CheckSplits(options, {kBoth}, {"llama_tied", "olmo2", "qwen3_moe", "qwen3_5_text"});
}

// It is whole on the engine core's rank.
TEST_CASE("ranks: a smaller model that drafts changes no token") {
  EngineDriverOptions options;
  options.dtype = DType::kBf16;
  const std::string folder = TANDEM_GOLDEN_DIR "/models/llama_plain";
  const json goldens = ReadGoldens(folder);
  const std::vector<Transcript> expected = RunAllPrompts(folder, goldens, options, {});
  options.speculation =
      ParseSpeculativeConfig(R"({"method": "draft_model", "num_speculative_tokens": 3,
                                 "adaptive": false, "model": ")" +
                             folder + "\"}")
          .value();
  const std::vector<Transcript> got = RunAllPrompts(folder, goldens, options, kTwoShares);
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i, got[i].error);
    CHECK(got[i].token_ids == expected[i].token_ids);
    CHECK(got[i].logprobs == expected[i].logprobs);
  }
}

TEST_CASE("ranks: a pipeline of as many stages as layers") {
  EngineDriverOptions options;
  CheckSplits(options, {kThreeStages}, {"llama_plain", "lfm2"});
  CheckSplits(options, {kFourStages}, {"gemma2", "gemma3_text", "gpt_oss_mxfp4", "qwen3_5_text"});
}

}  // namespace
}  // namespace tandem
