// A request's tokens and logprobs are the same bits whatever runs with it, however its prompt is
// cut, whether its prefix came from the cache, and after a preemption. Each run draws its
// conditions from a seed (printed on failure) and is compared with the request run alone.

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/weights/dummy_weights.h"
#include "tests/support/dice.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/made_weights.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/files/temp_folder.h"
#include "tests/support/gzip/gzip_lines.h"
#include "tests/support/state_models.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int32_t kMaxModelLen = 256;

EngineDriverOptions BaseOptions(const std::string& model, DType dtype, bool reference) {
  EngineDriverOptions options;
  options.model_dir = TANDEM_GOLDEN_DIR "/models/" + model;
  options.reference_backend = reference;
  options.dtype = dtype;
  options.max_model_len = kMaxModelLen;
  return options;
}

// Prompts of all lengths, half of them with a common prefix; every kind of sampling.
std::vector<TestRequest> MakeRequests(uint64_t seed, TokenId last_token) {
  Dice dice(seed);
  std::vector<TokenId> shared;
  for (int i = 0; i < 128; ++i) shared.push_back(dice.Roll(3, last_token));
  std::vector<TestRequest> requests;
  for (int i = 0; i < 6; ++i) {
    TestRequest& r = requests.emplace_back();
    r.id = "request-" + std::to_string(i);
    if (i % 2 == 0) r.prompt.assign(shared.begin(), shared.begin() + dice.Roll(33, 128));
    const int32_t own = dice.Roll(1, 70);
    for (int32_t t = 0; t < own; ++t) r.prompt.push_back(dice.Roll(3, last_token));
    r.params = GreedyParams(dice.Roll(1, 40));
    r.params.logprobs = dice.Roll(0, 3);
    if (i % 3 != 0) {
      r.params.temperature = 0.9;
      r.params.top_p = i % 3 == 1 ? 0.9 : 1.0;
      r.params.top_k = i == 4 ? 20 : 0;
      if (i != 5) r.params.seed = dice.Roll(0, 1 << 20);  // the last one's seed follows from its id
    }
    if (i == 2) {
      r.params.repetition_penalty = 1.2;
      r.params.frequency_penalty = 0.3;
    }
    if (i == 3) r.params.prompt_logprobs = 2;
    r.arrival_step = dice.Roll(0, kLastArrivalStep);
  }
  return requests;
}

bool SameBits(const wire::LogprobsRows& a, const wire::LogprobsRows& b) {
  return a.num_rows == b.num_rows && a.num_columns == b.num_columns && a.token_ids == b.token_ids &&
         a.ranks == b.ranks &&
         std::equal(a.logprobs.begin(), a.logprobs.end(), b.logprobs.begin(), b.logprobs.end(),
                    [](float x, float y) {
                      return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
                    });
}

void CheckSame(const Transcript& got, const Transcript& expected) {
  REQUIRE(got.error.empty());
  CHECK(got.finished);
  CHECK(got.token_ids == expected.token_ids);
  REQUIRE(got.rows.size() == expected.rows.size());
  for (size_t i = 0; i < got.rows.size(); ++i) {
    CAPTURE(i);
    CHECK(SameBits(got.rows[i], expected.rows[i]));
  }
  CHECK(SameBits(got.prompt_logprobs, expected.prompt_logprobs));
}

// Each request in its own engine, its prompt in one piece, without a cache.
std::vector<Transcript> RunAlone(const EngineDriverOptions& base,
                                 const std::vector<TestRequest>& requests) {
  std::vector<Transcript> transcripts;
  for (const TestRequest& r : requests) {
    EngineDriverOptions options = base;
    options.enable_prefix_caching = false;
    options.gives_back_blocks = false;
    EngineDriver engine(options);
    engine.Add(r.id, r.prompt, r.params);
    engine.RunAll();
    transcripts.push_back(engine.transcript(r.id));
    REQUIRE(transcripts.back().token_ids.size() == static_cast<size_t>(r.params.max_tokens));
  }
  return transcripts;
}

struct Seen {
  int64_t cached_tokens = 0;
  int64_t preemptions = 0;

  void Add(const Seen& other) {
    cached_tokens += other.cached_tokens;
    preemptions += other.preemptions;
  }
  // The conditions did occur.
  void Check() const {
    CHECK(cached_tokens > 0);
    CHECK(preemptions > 0);
  }
};

void CheckAgainstAlone(EngineDriver* engine, const std::vector<TestRequest>& requests,
                       const std::vector<Transcript>& alone, Seen* seen) {
  for (size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(requests[i].id, requests[i].prompt.size());
    const Transcript& got = engine->transcript(requests[i].id);
    CheckSame(got, alone[i]);
    seen->cached_tokens += got.num_cached_tokens;
    seen->preemptions += got.num_preemptions;
  }
}

// Runs on `ranks` what one rank has run alone.
Seen RunSeeds(const EngineDriverOptions& base, uint64_t first_seed, uint64_t num_seeds,
              int32_t tight_num_blocks, const RankCounts& ranks = {}, TokenId last_token = 500) {
  Seen seen;
  for (uint64_t seed = first_seed; seed < first_seed + num_seeds; ++seed) {
    CAPTURE(base.model_dir, seed);
    Dice dice(1000 + seed);
    std::vector<TestRequest> requests = MakeRequests(seed, last_token);
    const std::vector<Transcript> alone = RunAlone(base, requests);
    EngineDriverOptions options = base;
    options.ranks = ranks;
    options.num_threads = base.reference_backend ? 1 : dice.Roll(1, 3);
    options.max_num_seqs = dice.Roll(2, 8);
    options.max_num_batched_tokens = dice.Roll(options.max_num_seqs, 200);
    {
      INFO("random batches and chunks of at most " << options.max_num_batched_tokens);
      options.enable_prefix_caching = false;
      EngineDriver engine(options);
      RunTogether(&engine, requests);
      CheckAgainstAlone(&engine, requests, alone, &seen);
    }
    {
      INFO("with a prefix cache, cold and warm");
      options.enable_prefix_caching = true;
      EngineDriver engine(options);
      RunTogether(&engine, requests);
      CheckAgainstAlone(&engine, requests, alone, &seen);
      // The same prompts and ids again, now in the cache.
      std::vector<TestRequest> again = requests;
      EngineDriver* warm = &engine;
      warm->Forget();
      RunTogether(warm, again);
      CheckAgainstAlone(warm, again, alone, &seen);
    }
    {
      INFO("in a pool that is too small for all");
      options.enable_prefix_caching = seed % 2 == 0;
      options.max_num_seqs = 6;
      options.num_blocks = tight_num_blocks;
      EngineDriver engine(options);
      RunTogether(&engine, requests);
      CheckAgainstAlone(&engine, requests, alone, &seen);
    }
  }
  return seen;
}

// With groups of layers: what one request may need, and a place more.
constexpr int32_t kTightOfGroups = kMaxModelLen / 32 + 1;

void CheckInvariance(const EngineDriverOptions& base, uint64_t first_seed, uint64_t num_seeds,
                     int32_t tight_num_blocks = kMaxModelLen / 32 + 4, const RankCounts& ranks = {},
                     TokenId last_token = 500) {
  RunSeeds(base, first_seed, num_seeds, tight_num_blocks, ranks, last_token).Check();
}

TEST_CASE("batch invariance: llama in bfloat16 on cpu") {
  CheckInvariance(BaseOptions("llama_plain", DType::kBf16, false), 0, 8);
}

TEST_CASE("batch invariance: llama in float32 on cpu") {
  CheckInvariance(BaseOptions("llama_plain", DType::kF32, false), 100, 6);
}

TEST_CASE("batch invariance: qwen3 in bfloat16 on cpu") {
  CheckInvariance(BaseOptions("qwen3", DType::kBf16, false), 200, 6);
}

TEST_CASE("batch invariance: mixtral in bfloat16 on cpu") {
  CheckInvariance(BaseOptions("mixtral", DType::kBf16, false), 400, 5);
}

TEST_CASE("batch invariance: qwen3-moe in bfloat16 and float32 on cpu") {
  CheckInvariance(BaseOptions("qwen3_moe", DType::kBf16, false), 500, 4);
  CheckInvariance(BaseOptions("qwen3_moe", DType::kF32, false), 550, 3);
}

TEST_CASE("batch invariance: groups of layers with and without a window") {
  Seen seen;
  seen.Add(RunSeeds(BaseOptions("gemma2", DType::kBf16, false), 1600, 3, kTightOfGroups));
  seen.Add(RunSeeds(BaseOptions("gemma3_text", DType::kBf16, false), 1650, 3, kTightOfGroups));
  seen.Add(RunSeeds(BaseOptions("gemma3_text", DType::kF32, false), 1700, 2, kTightOfGroups));
  seen.Add(RunSeeds(BaseOptions("gpt_oss_mxfp4", DType::kBf16, false), 1750, 2, kTightOfGroups));
  seen.Check();
}

TEST_CASE("batch invariance: deepseek's latents in bfloat16, float32 and int8 on cpu") {
  CheckInvariance(BaseOptions("deepseek_v2", DType::kBf16, false), 1000, 4);
  CheckInvariance(BaseOptions("deepseek_v2", DType::kF32, false), 1050, 2);
  EngineDriverOptions options = BaseOptions("deepseek_v2", DType::kBf16, false);
  options.kv_format = KvFormat::kInt8;
  CheckInvariance(options, 1100, 2);
  options.kv_format = KvFormat::kInt4;
  CheckInvariance(options, 1120, 2);
}

TEST_CASE("batch invariance: an int4 cache, with and without windows") {
  EngineDriverOptions options = BaseOptions("llama_plain", DType::kBf16, false);
  options.kv_format = KvFormat::kInt4;
  CheckInvariance(options, 1130, 4);
  options = BaseOptions("gemma2", DType::kF32, false);
  options.kv_format = KvFormat::kInt4;
  CheckInvariance(options, 1140, 2);
}

TEST_CASE("batch invariance: states at the ends of blocks, of delta rules and convolutions") {
  Seen seen;
  seen.Add(RunSeeds(BaseOptions("qwen3_5_text", DType::kBf16, false), 1200, 4, kTightOfGroups));
  seen.Add(RunSeeds(BaseOptions("qwen3_5_text", DType::kF32, false), 1250, 2, kTightOfGroups));
  seen.Add(RunSeeds(BaseOptions("lfm2", DType::kBf16, false), 1300, 3, kTightOfGroups));
  EngineDriverOptions options = BaseOptions("qwen3_5_text", DType::kBf16, false);
  options.kv_format = KvFormat::kInt8;
  seen.Add(RunSeeds(options, 1350, 2, kTightOfGroups));
  seen.Check();
}

TEST_CASE("batch invariance: states of scans, with made up weights") {
  uint64_t seed = 1400;
  Seen seen;
  for (const std::string_view model : kStateModels) {
    CAPTURE(model);
    const TempFolder folder;
    folder.Write("config.json", ConfigOfStateModel(model));
    const auto weights = MakeDummyWeights(seed);
    EngineDriverOptions options = BaseOptions("", DType::kBf16, false);
    options.model_dir = folder.path();
    options.weights = weights.get();
    seen.Add(RunSeeds(options, seed, 2, kTightOfGroups));
    seed += 50;
  }
  seen.Check();
}

TEST_CASE("batch invariance: the models of golden_made_models") {
  const auto models = ReadGzipJson(TANDEM_GOLDEN_DIR "/made_models/models.json");
  const auto weights = MakeMadeWeights(models["seed"]);
  uint64_t seed = 1800;
  Seen seen;
  for (const auto& model : models["cases"]) {
    CAPTURE(model["name"].get<std::string>());
    const TempFolder folder;
    folder.Write("config.json", model["config"].dump());
    for (const DType dtype : {DType::kBf16, DType::kF32}) {
      EngineDriverOptions options = BaseOptions("", dtype, false);
      options.model_dir = folder.path();
      options.weights = weights.get();
      seen.Add(RunSeeds(options, seed++, 1, kMaxModelLen / 32 + 4, {}, 250));
    }
  }
  seen.Check();
}

TEST_CASE("batch invariance: sparse attention with ranks that share layers, and in stages") {
  const auto models = ReadGzipJson(TANDEM_GOLDEN_DIR "/made_models/models.json");
  const auto weights = MakeMadeWeights(models["seed"]);
  int num_models = 0;
  for (const auto& model : models["cases"]) {
    const bool shares_choices = model["name"] == "GlmMoeDsaForCausalLM";
    if (model["name"] != "DeepseekV32ForCausalLM" && !shares_choices) continue;
    ++num_models;
    const TempFolder folder;
    folder.Write("config.json", model["config"].dump());
    EngineDriverOptions options = BaseOptions("", DType::kBf16, false);
    options.model_dir = folder.path();
    options.weights = weights.get();
    constexpr int32_t kTight = kMaxModelLen / 32 + 4;
    CheckInvariance(options, 1855, 2, kTight, {.pipeline = 2}, 250);
    if (!shares_choices) CheckInvariance(options, 1850, 2, kTight, {.tensor = 2}, 250);
  }
  CHECK(num_models == 2);
}

// In stages of one layer a group has layers in one stage alone.
TEST_CASE("batch invariance: states of heads that ranks share, and in stages") {
  constexpr int32_t kTight = kTightOfGroups;
  Seen seen;
  const EngineDriverOptions delta = BaseOptions("qwen3_5_text", DType::kBf16, false);
  seen.Add(RunSeeds(delta, 1900, 2, kTight, {.tensor = 2}));
  seen.Add(RunSeeds(delta, 1910, 1, kTight, {.tensor = 2, .pipeline = 2}));
  seen.Add(RunSeeds(delta, 1915, 1, kTight, {.pipeline = 4}));
  EngineDriverOptions int8 = delta;
  int8.kv_format = KvFormat::kInt8;
  seen.Add(RunSeeds(int8, 1917, 1, kTight, {.tensor = 2}));
  seen.Add(RunSeeds(BaseOptions("lfm2", DType::kBf16, false), 1920, 2, kTight, {.tensor = 2}));
  const auto weights = MakeDummyWeights(41);
  for (const std::string_view model : kStateModels) {
    CAPTURE(model);
    const TempFolder folder;
    folder.Write("config.json", ConfigOfStateModel(model));
    EngineDriverOptions options = BaseOptions("", DType::kBf16, false);
    options.model_dir = folder.path();
    options.weights = weights.get();
    seen.Add(RunSeeds(options, 1930, 1, kTight, {.tensor = 2}));
  }
  seen.Check();
}

// With made-up weights. Windows in the layers 0, 2 and 4.
EngineDriverOptions UnevenOptions(Weights* weights, DType dtype, const std::string& more_keys) {
  EngineDriverOptions options = BaseOptions("llama_plain", dtype, false);
  options.weights = weights;
  options.hf_overrides = R"({"architectures": ["Gemma4ForCausalLM"], "num_hidden_layers": 6,
      "sliding_window": 40, "sliding_window_pattern": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 48, "hidden_act": null,
      "hidden_activation": "gelu_pytorch_tanh", "rope_theta": null, "tie_word_embeddings": true,
      )" + more_keys + "}";
  return options;
}

TEST_CASE("batch invariance: layers that differ in their heads, share caches and take inputs") {
  const auto weights = MakeDummyWeights(11);
  const std::string keys = R"("num_kv_shared_layers": 3, "use_double_wide_mlp": true,
      "hidden_size_per_layer_input": 24, "final_logit_softcapping": 2)";
  CheckInvariance(UnevenOptions(weights.get(), DType::kBf16, keys), 1400, 3);
  CheckInvariance(UnevenOptions(weights.get(), DType::kF32, keys), 1450, 2);
  EngineDriverOptions options = UnevenOptions(weights.get(), DType::kBf16, keys);
  CheckInvariance(options, 1490, 2, kMaxModelLen / 32 + 4, {.tensor = 2, .pipeline = 2});
  options.kv_format = KvFormat::kInt8;
  CheckInvariance(options, 1500, 2);
}

TEST_CASE("batch invariance: a mixture beside the MLP, and keys that are values") {
  const auto weights = MakeDummyWeights(12);
  const std::string keys = R"("attention_k_eq_v": true, "num_global_key_value_heads": 1,
      "enable_moe_block": true, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 32,
      "hidden_size_per_layer_input": 0)";
  CheckInvariance(UnevenOptions(weights.get(), DType::kBf16, keys), 1600, 3);
  CheckInvariance(UnevenOptions(weights.get(), DType::kF32, keys), 1650, 2);
}

// The whole goldens' weights, where they are.
TEST_CASE("batch invariance: Gemma 4 as transformers made it") {
  const auto goldens = WholeGoldens();
  if (!goldens) return;
  for (const char* name : {"gemma4_text", "gemma4_moe"}) {
    EngineDriverOptions options = BaseOptions("", DType::kBf16, false);
    options.model_dir = *goldens + "/models2/" + name;
    CheckInvariance(options, 1700, 3);
    options.dtype = DType::kF32;
    CheckInvariance(options, 1750, 2);
  }
}

TEST_CASE("batch invariance: GGUF files whose blocks are multiplied as they are") {
  for (const char* name : {"gguf_llama_q4_0", "gguf_qwen3moe_q8_0"}) {
    EngineDriverOptions options = BaseOptions("", DType::kBf16, false);
    options.model_dir = std::string(TANDEM_GOLDEN_DIR "/quantized/") + name + "/model.gguf";
    options.formats = WeightFormatsOf("auto");
    CheckInvariance(options, 900, 3, kMaxModelLen / 32 + 4, {}, 300);
  }
}

TEST_CASE("batch invariance: mistral, with blocks before its window freed") {
  // 9 blocks are the most that one request may hold.
  CheckInvariance(BaseOptions("mistral_swa", DType::kBf16, false), 600, 6, 1 + 9);
  CheckInvariance(BaseOptions("mistral_swa", DType::kF32, false), 700, 6, 1 + 9);
}

TEST_CASE("batch invariance: ranks that share layers, stages of layers, and both") {
  constexpr int32_t kTight = kMaxModelLen / 32 + 4;
  CheckInvariance(BaseOptions("llama_plain", DType::kBf16, false), 800, 3, kTight, {.tensor = 2});
  CheckInvariance(BaseOptions("llama_plain", DType::kBf16, false), 830, 4, kTight, {.pipeline = 2});
  CheckInvariance(BaseOptions("gemma2", DType::kBf16, false), 860, 3, kTightOfGroups,
                  {.pipeline = 4});
  CheckInvariance(BaseOptions("gemma3_text", DType::kBf16, false), 870, 2, kTightOfGroups,
                  {.tensor = 2});
  CheckInvariance(BaseOptions("gpt_oss_mxfp4", DType::kBf16, false), 880, 2, kTightOfGroups,
                  {.tensor = 2, .pipeline = 2});
  CheckInvariance(BaseOptions("qwen3_moe", DType::kBf16, false), 890, 2, kTight,
                  {.tensor = 2, .pipeline = 2});
}

TEST_CASE("batch invariance: llama on the reference backend") {
  CheckInvariance(BaseOptions("llama_plain", DType::kF32, true), 300, 2);
}

}  // namespace
}  // namespace tandem
