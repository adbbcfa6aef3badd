// Outputs with drafts are the outputs without: every token, logprob and reason to stop, whatever is
// sampled, cut, cached, preempted, or resumed. Each run draws its conditions from a seed (printed
// on failure).

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/executor/draft_model.h"
#include "engine_core/models/registry.h"
#include "engine_core/weights/dummy_weights.h"
#include "tests/support/dice.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/made_weights.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/files/head_folder.h"
#include "tests/support/files/temp_folder.h"
#include "tests/support/gzip/gzip_lines.h"
#include "tests/support/state_models.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int32_t kMaxModelLen = 192;
// A drafter that is mostly wrong.
const std::string kDrafter = TANDEM_GOLDEN_DIR "/models/llama_plain";
constexpr int32_t kDrafterVocabSize = 512;

// Every kind of sampling; prompts that repeat themselves, so that there is something to draft.
wire::SamplingParams DrawParams(int i, Dice* dice) {
  wire::SamplingParams params = GreedyParams(dice->Roll(1, 60));
  if (dice->Roll(0, 1) == 1) params.logprobs = dice->Roll(0, 3);
  if (i % 3 != 0) {
    params.temperature = i % 3 == 1 ? 0.3 : 0.8;
    params.top_p = dice->Roll(0, 1) == 1 ? 0.8 : 1.0;
    params.top_k = dice->Roll(0, 1) == 1 ? 5 : 0;
    params.min_p = dice->Roll(0, 1) == 1 ? 0.05 : 0;
    if (dice->Roll(0, 2) > 0) params.seed = dice->Roll(0, 1 << 20);
  }
  if (dice->Roll(0, 2) == 0) {
    params.repetition_penalty = 1.1;
    params.frequency_penalty = 0.2;
    params.presence_penalty = 0.1;
  }
  // Few tokens repeat themselves soon.
  if (dice->Roll(0, 1) == 0) params.allowed_token_ids = {4, 5, 6};
  if (dice->Roll(0, 3) == 0) params.logit_bias = {{dice->Roll(3, 100), 2.0}};
  if (dice->Roll(0, 3) == 0) params.prompt_logprobs = 1;
  if (dice->Roll(0, 2) == 0) {
    for (int s = 0; s < 20; ++s) params.stop_token_ids.push_back(dice->Roll(3, 200));
    params.all_stop_token_ids = params.stop_token_ids;
    params.min_tokens = dice->Roll(0, std::min(8, params.max_tokens));
  }
  if (dice->Roll(0, 3) == 0) params.repetition_detection = wire::RepetitionDetection{8, 1, 5};
  return params;
}

std::vector<TestRequest> DrawRequests(int32_t vocab_size, Dice* dice) {
  std::vector<TokenId> shared;
  for (int i = 0; i < 64; ++i) shared.push_back(dice->Roll(3, std::min(vocab_size, 40) - 1));
  std::vector<TestRequest> requests;
  for (int i = 0; i < 6; ++i) {
    TestRequest& r = requests.emplace_back();
    r.id = "request-" + std::to_string(i);
    r.prompt.assign(shared.begin(), shared.begin() + dice->Roll(1, 64));
    const int32_t own = dice->Roll(1, 50);
    for (int32_t t = 0; t < own; ++t) r.prompt.push_back(dice->Roll(3, 8));
    r.params = DrawParams(i, dice);
    r.arrival_step = dice->Roll(0, kLastArrivalStep);
  }
  return requests;
}

void CheckSame(const Transcript& got, const Transcript& expected) {
  REQUIRE(got.error == expected.error);
  CHECK(got.finished);
  CHECK(got.token_ids == expected.token_ids);
  CHECK(got.finish_reason == expected.finish_reason);
  CHECK(got.stop_reason == expected.stop_reason);
  CHECK(got.rows == expected.rows);
  CHECK(got.prompt_logprobs == expected.prompt_logprobs);
}

// Drafters for one target: a model of its vocabulary, and heads of its shape.
struct Drafters {
  std::string model;
  std::string eagle, eagle3, medusa;
  std::string mtp = {};  // empty: the target is neither a llama nor Qwen3.5
};

// Heads of random numbers, which are mostly wrong.
Drafters WriteDrafters(const TempFolder& folder, const std::string& model,
                       const ModelConfig& target) {
  const HeadShape shape = {.hidden_size = target.hidden_size, .vocab_size = target.vocab_size};
  WriteHead(folder, "eagle", shape, 3);
  HeadShape eagle3 = shape;
  eagle3.is_eagle3 = true;
  eagle3.draft_vocab_size = target.vocab_size / 2;
  WriteHead(folder, "eagle3", eagle3, 4);
  WriteMedusa(folder, "medusa",
              {.hidden_size = target.hidden_size,
               .vocab_size = target.vocab_size,
               .num_heads = 7,
               .has_target_tables = true},
              5);
  Drafters drafters = {model, folder.PathOf("eagle"), folder.PathOf("eagle3"),
                       folder.PathOf("medusa")};
  const bool is_qwen = target.architecture == "Qwen3_5ForCausalLM";
  if (is_qwen || (target.architecture == "LlamaForCausalLM" && !target.attention_bias)) {
    WriteMtp(folder, "mtp",
             {.hidden_size = target.hidden_size,
              .inner_size = target.intermediate_size,
              .q_size = target.num_heads * target.head_dim,
              .kv_size = target.num_kv_heads * target.head_dim,
              .num_layers = target.num_layers,
              .gated_head_dim = is_qwen ? target.head_dim : 0},
             6);
    drafters.mtp = folder.PathOf("mtp");
  }
  return drafters;
}

using Methods = std::vector<DraftMethod>;
const Methods kAllMethods = {DraftMethod::kNgram, DraftMethod::kSuffix, DraftMethod::kDraftModel,
                             DraftMethod::kEagle, DraftMethod::kEagle3, DraftMethod::kMedusa,
                             DraftMethod::kMtp};

Methods DrawMethods(size_t count, Dice* dice) {
  Methods methods;
  for (size_t i = 0; i < count; ++i) {
    const int32_t last = static_cast<int32_t>(kAllMethods.size()) - 1;
    methods.push_back(kAllMethods[static_cast<size_t>(dice->Roll(0, last))]);
  }
  return methods;
}

// Empty: none is needed, or there is none.
std::string ModelOf(const Drafters& drafters, DraftMethod method) {
  switch (method) {
    case DraftMethod::kDraftModel:
      return drafters.model;
    case DraftMethod::kEagle:
      return drafters.eagle;
    case DraftMethod::kEagle3:
      return drafters.eagle3;
    case DraftMethod::kMedusa:
      return drafters.medusa;
    case DraftMethod::kMtp:
      return drafters.mtp;
    default:
      return "";
  }
}

SpeculativeConfig DrawSpeculation(const Drafters& drafters, DraftMethod method, Dice* dice) {
  SpeculativeConfig speculation;
  speculation.method = method;
  speculation.model = ModelOf(drafters, method);
  speculation.draws_drafts = !speculation.model.empty() && dice->Roll(0, 1) == 0;
  speculation.hashes_next_token = dice->Roll(0, 2) > 0;
  speculation.drops_last_found_block = dice->Roll(0, 1) == 0;
  speculation.suffix.max_cached_requests = dice->Roll(0, 3);
  speculation.num_speculative_tokens = dice->Roll(1, 7);
  speculation.prompt_lookup_min = dice->Roll(1, 2);
  speculation.prompt_lookup_max = speculation.prompt_lookup_min + dice->Roll(0, 2);
  speculation.adaptive = dice->Roll(0, 2) == 0;
  if (dice->Roll(0, 3) == 0)
    speculation.by_batch = {{1, speculation.num_speculative_tokens}, {3, 1}};
  return speculation;
}

struct Counts {
  int64_t num_accepted = 0, num_rejected = 0, num_preemptions = 0, num_cached = 0;

  void Add(EngineDriver* engine, const std::vector<TestRequest>& requests) {
    const auto stats = engine->scheduler().TakeStats().spec_decoding_stats;
    if (stats) num_accepted += stats->num_accepted_tokens;
    if (stats) num_rejected += stats->num_draft_tokens - stats->num_accepted_tokens;
    for (const TestRequest& r : requests) {
      num_preemptions += engine->transcript(r.id).num_preemptions;
      num_cached += engine->transcript(r.id).num_cached_tokens;
    }
  }
};

// One world without drafts, of one rank, in which nothing happens, and one for each method, or for
// some.
// heads: trained for the target; else random ones are made.
void CompareWorlds(const EngineDriverOptions& base, uint64_t seed, Counts* counts,
                   const std::string& heads = "", Methods methods = {}) {
  Dice dice(seed);
  EngineDriverOptions whole = base;
  whole.ranks = {};
  EngineDriver plain(whole);
  const int32_t vocab_size = plain.runner().limits().vocab_size;
  const std::vector<TestRequest> requests = DrawRequests(vocab_size, &dice);
  RunTogether(&plain, requests);
  const TempFolder folder;
  const ModelConfig target = ReadModelConfig(base.model_dir).value();
  Drafters drafters = WriteDrafters(folder, "", target);
  if (!heads.empty()) {
    drafters.eagle = heads + "/eagle";
    drafters.eagle3 = heads + "/eagle3";
  }
  if (methods.empty()) methods = DrawMethods(3, &dice);
  for (const DraftMethod method : methods) {
    if (method == DraftMethod::kMtp && drafters.mtp.empty()) continue;
    EngineDriverOptions options = base;
    // The target itself is mostly right.
    const bool may_draft = target.recurrent.num_layers() == 0;
    const bool drafts_itself =
        may_draft && (dice.Roll(0, 1) == 0 || vocab_size != kDrafterVocabSize);
    if (!may_draft && method == DraftMethod::kDraftModel) REQUIRE(vocab_size == kDrafterVocabSize);
    drafters.model = drafts_itself ? base.model_dir : kDrafter;
    options.speculation = DrawSpeculation(drafters, method, &dice);
    options.async_scheduling = dice.Roll(0, 2) == 0;
    options.max_num_batched_tokens = dice.Roll(0, 1) == 0 ? 256 : dice.Roll(9, 40);
    options.num_blocks = dice.Roll(0, 1) == 0 ? 64 : dice.Roll(9, 14);
    options.enable_prefix_caching = dice.Roll(0, 3) > 0;
    options.max_num_seqs = dice.Roll(2, 8);
    INFO(base.model_dir << ", seed " << seed << ", method " << static_cast<int>(method));
    EngineDriver engine(options);
    RunTogether(&engine, requests);
    counts->Add(&engine, requests);
    for (const TestRequest& r : requests) {
      INFO(r.id);
      CheckSame(engine.transcript(r.id), plain.transcript(r.id));
    }
    // The same requests again: prompts and earlier outputs come from the cache.
    engine.Forget();
    RunTogether(&engine, requests);
    counts->Add(&engine, requests);
    for (const TestRequest& r : requests) {
      INFO(r.id << " again");
      CheckSame(engine.transcript(r.id), plain.transcript(r.id));
    }
  }
}

EngineDriverOptions BaseOptions(const std::string& model, DType dtype, bool reference) {
  EngineDriverOptions options;
  options.model_dir = TANDEM_GOLDEN_DIR "/models/" + model;
  options.reference_backend = reference;
  options.dtype = dtype;
  options.max_model_len = kMaxModelLen;
  return options;
}

TEST_CASE("Drafts change no output: every architecture by every method") {
  Counts counts;
  for (const std::string& folder : GoldenFolders(TANDEM_GOLDEN_DIR, "models", "goldens.json")) {
    EngineDriverOptions options = BaseOptions("", DType::kBf16, false);
    options.model_dir = folder;
    CompareWorlds(options, 1, &counts, "", kAllMethods);
  }
  CHECK(counts.num_accepted > 100);
  CHECK(counts.num_rejected > 100);
}

TEST_CASE("Drafts change no output: sparse attention, with made up weights") {
  const auto models = ReadGzipJson(TANDEM_GOLDEN_DIR "/made_models/models.json");
  const auto weights = MakeMadeWeights(models["seed"]);
  Counts counts;
  for (const auto& model : models["cases"]) {
    if (!model["config"].contains("index_topk")) continue;
    const TempFolder folder;
    folder.Write("config.json", model["config"].dump());
    EngineDriverOptions options = BaseOptions("", DType::kBf16, false);
    options.model_dir = folder.path();
    options.weights = weights.get();
    CompareWorlds(options, 1, &counts, "",
                  {DraftMethod::kNgram, DraftMethod::kSuffix, DraftMethod::kMedusa});
  }
  CHECK(counts.num_accepted > 0);
  CHECK(counts.num_rejected > 100);
}

// Models of the vocabulary of kDrafter, whose layers have states of kinds that no folder has.
std::vector<std::string> StateConfigs() {
  std::vector<std::string> configs;
  for (const std::string_view model : kStateModels) configs.push_back(ConfigOfStateModel(model));
  configs.push_back(ConfigOfStateModel(
      R"("architectures": ["Qwen3_5ForCausalLM"], "num_hidden_layers": 2,
         "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 4,
         "linear_num_value_heads": 8, "linear_key_head_dim": 32, "linear_value_head_dim": 16,
         "linear_key_heads_take_turns": true)"));
  return configs;
}

TEST_CASE("Drafts change no output: states of every kind, with made up weights") {
  Counts counts;
  for (const std::string& config : StateConfigs()) {
    CAPTURE(config);
    const TempFolder folder;
    folder.Write("config.json", config);
    const auto weights = MakeDummyWeights(51);
    EngineDriverOptions options = BaseOptions("", DType::kBf16, false);
    options.model_dir = folder.path();
    options.weights = weights.get();
    const Methods methods = {DraftMethod::kNgram, DraftMethod::kSuffix, DraftMethod::kMedusa};
    CompareWorlds(options, 1, &counts, "", methods);
    for (const RankCounts& ranks : {RankCounts{.tensor = 2}, RankCounts{.pipeline = 2},
                                    RankCounts{.tensor = 2, .pipeline = 2}}) {
      CAPTURE(ranks.tensor, ranks.pipeline);
      options.ranks = ranks;
      CompareWorlds(options, 2, &counts, "", {DraftMethod::kNgram});
    }
  }
  CHECK(counts.num_accepted > 100);
  CHECK(counts.num_rejected > 100);
}

TEST_CASE("Drafts change no output: models with states of the larger set") {
  const auto goldens = WholeGoldens();
  if (!goldens) return;
  Counts counts;
  for (const char* model : {"qwen3_next", "qwen3_5_moe", "falcon_h1", "granitemoehybrid", "jamba",
                            "kimi_linear", "mamba2", "nemotron_h"}) {
    EngineDriverOptions options = BaseOptions("", DType::kBf16, false);
    options.model_dir = *goldens + "/models2/" + model;
    CompareWorlds(options, 1, &counts, "",
                  {DraftMethod::kNgram, DraftMethod::kSuffix, DraftMethod::kMedusa});
  }
  CHECK(counts.num_accepted > 100);
  CHECK(counts.num_rejected > 100);
}

TEST_CASE("Drafts change no output: many conditions") {
  Counts counts;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    CompareWorlds(BaseOptions("llama_plain", DType::kF32, seed % 3 == 0), seed, &counts);
  }
  CHECK(counts.num_accepted > 100);
  CHECK(counts.num_rejected > 100);
  CHECK(counts.num_preemptions > 0);
  CHECK(counts.num_cached > 0);
}

TEST_CASE("Drafts change no output: states in many conditions") {
  for (const char* model : {"qwen3_5_text", "lfm2"}) {
    CAPTURE(model);
    Counts counts;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      EngineDriverOptions options =
          BaseOptions(model, seed % 2 == 0 ? DType::kF32 : DType::kBf16, seed % 4 == 0);
      if (seed % 3 == 0) options.ranks = {.tensor = 2};
      if (seed % 3 == 1) options.ranks = {.tensor = seed % 2 == 0 ? 2 : 1, .pipeline = 2};
      CompareWorlds(options, seed, &counts);
    }
    CHECK(counts.num_accepted > 100);
    CHECK(counts.num_rejected > 100);
    CHECK(counts.num_preemptions > 0);
    CHECK(counts.num_cached > 0);
  }
}

TEST_CASE("A drafter with states is refused, and a layer for it that is not built") {
  const ModelConfig target = ReadModelConfig(kDrafter).value();
  SpeculativeConfig speculation;
  speculation.method = DraftMethod::kDraftModel;
  speculation.model = TANDEM_GOLDEN_DIR "/models/qwen3_5_text";
  CHECK_THAT(ReadDraftModelConfig(target, speculation).status().message(),
             Catch::Contains("--speculative-config") && Catch::Contains("recurrent layers"));
  speculation.method = DraftMethod::kMtp;
  const ModelConfig with_states = ReadModelConfig(TANDEM_GOLDEN_DIR "/models/lfm2").value();
  CHECK_THAT(ReadDraftModelConfig(with_states, speculation).status().message(),
             Catch::Contains("mtp") && Catch::Contains("Lfm2ForCausalLM"));
}

// There is room for 64 in a step.
TEST_CASE("Drafts change no output: more drafts than a step of states has room for") {
  EngineDriverOptions options = BaseOptions("qwen3_5_text", DType::kBf16, false);
  options.max_num_seqs = 24;
  options.num_blocks = 128;
  Dice dice(21);
  std::vector<TestRequest> requests;
  for (int i = 0; i < 24; ++i) {
    TestRequest& r = requests.emplace_back();
    r.id = "request-" + std::to_string(i);
    for (int32_t t = 0; t < 40; ++t) r.prompt.push_back(4 + t % 3);
    r.prompt.push_back(dice.Roll(3, 40));
    for (int32_t t = 0; t < 20; ++t) r.prompt.push_back(4 + t % 3);
    r.params = GreedyParams(30);
    r.params.allowed_token_ids = {4, 5, 6};
  }
  EngineDriver plain(options);
  RunTogether(&plain, requests);
  options.speculation = {.method = DraftMethod::kNgram,
                         .num_speculative_tokens = 7,
                         .prompt_lookup_min = 1,
                         .prompt_lookup_max = 3,
                         .adaptive = false};
  for (const bool is_async : {false, true}) {
    options.async_scheduling = is_async;
    EngineDriver engine(options);
    RunTogether(&engine, requests);
    Counts counts;
    counts.Add(&engine, requests);
    CHECK(counts.num_accepted > 100);
    for (const TestRequest& r : requests) {
      INFO(r.id);
      CheckSame(engine.transcript(r.id), plain.transcript(r.id));
    }
  }
}

const std::string kHeads = TANDEM_GOLDEN_DIR "/speculative";  // with the target they read

EngineDriverOptions HeadOptions(DType dtype) {
  EngineDriverOptions options = BaseOptions("", dtype, false);
  options.model_dir = kHeads + "/target";
  return options;
}

TEST_CASE("Drafts change no output: heads that are often right") {
  Counts counts;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    CompareWorlds(HeadOptions(seed % 2 == 0 ? DType::kF32 : DType::kBf16), seed, &counts, kHeads);
  }
  CHECK(counts.num_accepted > 100);
  CHECK(counts.num_rejected > 100);
  CHECK(counts.num_preemptions > 0);
  CHECK(counts.num_cached > 0);
}

TEST_CASE("Drafts change no output: several ranks") {
  for (const RankCounts& ranks : {RankCounts{.tensor = 2}, RankCounts{.pipeline = 2},
                                  RankCounts{.tensor = 2, .pipeline = 2}}) {
    CAPTURE(ranks.tensor, ranks.pipeline);
    Counts counts;
    EngineDriverOptions options = HeadOptions(DType::kBf16);
    options.ranks = ranks;
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      CompareWorlds(options, seed, &counts, kHeads, kAllMethods);
    }
    // Embedding and head are one table, which a head copies.
    options = BaseOptions("llama_tied", DType::kF32, false);
    options.ranks = ranks;
    CompareWorlds(options, 3, &counts, "", kAllMethods);
    CHECK(counts.num_accepted > 100);
    CHECK(counts.num_rejected > 100);
    CHECK(counts.num_preemptions > 0);
    CHECK(counts.num_cached > 0);
  }
}

// What a head guesses depends on the request's tokens alone, so the counts show whether each
// position got the states of its token.
TEST_CASE("A head guesses the same, however prompts and the model are cut") {
  for (const DraftMethod method : {DraftMethod::kEagle, DraftMethod::kEagle3}) {
    EngineDriverOptions options = HeadOptions(DType::kF32);
    options.enable_prefix_caching = false;
    options.speculation = {
        .method = method,
        .num_speculative_tokens = 3,
        .adaptive = false,
        .model = kHeads + (method == DraftMethod::kEagle ? "/eagle" : "/eagle3")};
    Dice dice(11);
    std::vector<TestRequest> requests = DrawRequests(320, &dice);
    for (TestRequest& r : requests) r.params = GreedyParams(r.params.max_tokens);
    Counts alone;
    for (const TestRequest& r : requests) {
      EngineDriver engine(options);
      engine.Add(r.id, r.prompt, r.params);
      engine.RunAll();
      alone.Add(&engine, {r});
    }
    CHECK(alone.num_accepted > 30);
    const auto check_together = [&] {
      EngineDriver engine(options);
      RunTogether(&engine, requests);
      Counts together;
      together.Add(&engine, requests);
      CHECK(together.num_accepted == alone.num_accepted);
      CHECK(together.num_rejected == alone.num_rejected);
    };
    for (const int32_t num_batched : {256, 40, 13}) {
      for (const bool is_async : {false, true}) {
        INFO("method " << static_cast<int>(method) << ", " << num_batched << " tokens, async "
                       << is_async);
        options.max_num_batched_tokens = num_batched;
        options.async_scheduling = is_async;
        check_together();
      }
    }
    for (const RankCounts& ranks : {RankCounts{.tensor = 2}, RankCounts{.pipeline = 2},
                                    RankCounts{.tensor = 2, .pipeline = 2}}) {
      CAPTURE(static_cast<int>(method), ranks.tensor, ranks.pipeline);
      options.ranks = ranks;
      check_together();
    }
  }
}

// A head over a part of the vocabulary has no logits for the rest.
TEST_CASE("A head's guesses are drawn, also over a part of the vocabulary") {
  EngineDriverOptions options = HeadOptions(DType::kF32);
  Dice dice(13);
  std::vector<TestRequest> requests = DrawRequests(320, &dice);
  for (TestRequest& r : requests) {
    r.params = GreedyParams(40);
    r.params.temperature = 1;
    r.params.seed = dice.Roll(0, 1 << 20);
  }
  for (const char* head : {"/eagle", "/eagle3"}) {
    INFO(head);
    int64_t num_accepted[2] = {};
    for (const bool draws : {false, true}) {
      options.speculation = {
          .method = std::string(head) == "/eagle" ? DraftMethod::kEagle : DraftMethod::kEagle3,
          .num_speculative_tokens = 3,
          .adaptive = false,
          .model = kHeads + head,
          .draws_drafts = draws};
      EngineDriver engine(options);
      RunTogether(&engine, requests);
      Counts counts;
      counts.Add(&engine, requests);
      num_accepted[draws ? 1 : 0] = counts.num_accepted;
    }
    INFO(num_accepted[0] << " likeliest, " << num_accepted[1] << " drawn");
    CHECK(num_accepted[1] != num_accepted[0]);
  }
}

TEST_CASE("Drafters with a model sleep with their target, and guess as well after it") {
  EngineDriverOptions options = HeadOptions(DType::kBf16);
  options.can_sleep = true;
  Dice dice(15);
  std::vector<TestRequest> requests = DrawRequests(320, &dice);
  for (TestRequest& r : requests) r.params = GreedyParams(30);
  const TempFolder folder;
  Drafters drafters =
      WriteDrafters(folder, options.model_dir, ReadModelConfig(options.model_dir).value());
  drafters.eagle = kHeads + "/eagle";
  for (const DraftMethod method :
       {DraftMethod::kDraftModel, DraftMethod::kEagle, DraftMethod::kMedusa, DraftMethod::kMtp}) {
    const std::string model = ModelOf(drafters, method);
    if (model.empty()) continue;
    CAPTURE(model);
    options.speculation = {
        .method = method, .num_speculative_tokens = 3, .adaptive = false, .model = model};
    // A head of several ranks has copies of tables, which sleep, too.
    options.ranks.tensor = method == DraftMethod::kMtp ? 2 : 1;
    EngineDriver engine(options);
    std::vector<Transcript> expected;
    int64_t num_accepted = 0;
    for (const bool rereads : {false, true, true}) {
      RunTogether(&engine, requests);
      Counts counts;
      counts.Add(&engine, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        const Transcript& got = engine.transcript(requests[i].id);
        if (expected.size() == i) expected.push_back(got);
        CheckSame(got, expected[i]);
      }
      if (num_accepted == 0) num_accepted = counts.num_accepted;
      CHECK(counts.num_accepted == num_accepted);
      engine.Forget();
      REQUIRE(engine.scheduler().ResetPrefixCache(/*preempt_running=*/false, 0));
      REQUIRE(engine.runner().Release({.weights = true, .kv_cache = true}, rereads).ok());
      REQUIRE(engine.runner().Restore({.weights = true}).ok());
      REQUIRE(engine.runner().Restore({.kv_cache = true}).ok());
    }
    if (method == DraftMethod::kDraftModel || method == DraftMethod::kEagle) {
      CHECK(num_accepted > 0);
    }
  }
}

TEST_CASE("A head of NaN changes no output") {
  EngineDriverOptions options = HeadOptions(DType::kBf16);
  Dice dice(14);
  const std::vector<TestRequest> requests = DrawRequests(320, &dice);
  EngineDriver plain(options);
  RunTogether(&plain, requests);
  const ModelConfig target = ReadModelConfig(options.model_dir).value();
  for (const bool is_eagle3 : {false, true}) {
    const HeadShape shape = {.is_eagle3 = is_eagle3,
                             .hidden_size = target.hidden_size,
                             .vocab_size = target.vocab_size,
                             .draft_vocab_size = target.vocab_size};
    std::vector<FileTensor> tensors = HeadTensors(shape, 1);
    for (FileTensor& tensor : tensors) std::ranges::fill(tensor.bytes, '\xff');
    const TempFolder folder;
    folder.Write("config.json", HeadConfigText(shape));
    folder.Write("model.safetensors", SafetensorsBytes(tensors));
    options.speculation = {.method = is_eagle3 ? DraftMethod::kEagle3 : DraftMethod::kEagle,
                           .num_speculative_tokens = 3,
                           .adaptive = false,
                           .model = folder.path(),
                           .draws_drafts = is_eagle3};
    EngineDriver engine(options);
    RunTogether(&engine, requests);
    for (const TestRequest& r : requests) {
      INFO(r.id);
      CheckSame(engine.transcript(r.id), plain.transcript(r.id));
    }
  }
}

// Medusa's heads that are the target's own guess the newest token again, drawn with the request's
// own sampling: often right where few tokens are allowed, and only with the right states.
TEST_CASE("Medusa's heads guess the same, however prompts are cut and whatever runs beside them") {
  EngineDriverOptions options = HeadOptions(DType::kF32);
  options.enable_prefix_caching = false;
  const TempFolder folder;
  const Drafters drafters = WriteDrafters(folder, "", ReadModelConfig(options.model_dir).value());
  options.speculation = {.method = DraftMethod::kMedusa,
                         .num_speculative_tokens = 4,
                         .adaptive = false,
                         .model = drafters.medusa,
                         .draws_drafts = true};
  Dice dice(12);
  std::vector<TestRequest> requests = DrawRequests(320, &dice);
  for (TestRequest& r : requests) {
    r.params = GreedyParams(r.params.max_tokens);
    r.params.allowed_token_ids = {4, 5};
  }
  Counts alone;
  for (const TestRequest& r : requests) {
    EngineDriver engine(options);
    engine.Add(r.id, r.prompt, r.params);
    engine.RunAll();
    alone.Add(&engine, {r});
  }
  CHECK(alone.num_accepted > 30);
  for (const int32_t num_batched : {256, 40, 13}) {
    INFO(num_batched << " tokens");
    options.max_num_batched_tokens = num_batched;
    options.async_scheduling = num_batched == 40;
    EngineDriver engine(options);
    RunTogether(&engine, requests);
    Counts together;
    together.Add(&engine, requests);
    CHECK(together.num_accepted == alone.num_accepted);
    CHECK(together.num_rejected == alone.num_rejected);
  }
}

// The bits of a logits row depend on its request alone, so these drafts can only be wrong if the
// drafter's keys and values are.
TEST_CASE("A drafter that is the target is never wrong: cut, cached, preempted, left behind") {
  Counts counts;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Dice dice(seed);
    EngineDriverOptions options = BaseOptions("llama_plain", DType::kF32, false);
    options.speculation = {.method = DraftMethod::kDraftModel,
                           .num_speculative_tokens = dice.Roll(1, 6),
                           .adaptive = dice.Roll(0, 2) == 0,
                           .model = options.model_dir};
    options.async_scheduling = dice.Roll(0, 2) == 0;
    options.max_num_batched_tokens = dice.Roll(0, 1) == 0 ? 256 : dice.Roll(12, 40);
    options.num_blocks = dice.Roll(0, 1) == 0 ? 64 : dice.Roll(9, 14);
    options.max_num_seqs = dice.Roll(2, 8);
    INFO("seed " << seed);
    EngineDriver engine(options);
    std::vector<TestRequest> requests = DrawRequests(engine.runner().limits().vocab_size, &dice);
    for (TestRequest& r : requests) r.params = GreedyParams(r.params.max_tokens);
    for (int run = 0; run < 2; ++run) {
      engine.Forget();
      RunTogether(&engine, requests);
      counts.Add(&engine, requests);
    }
  }
  CHECK(counts.num_accepted > 100);
  CHECK(counts.num_rejected == 0);
  CHECK(counts.num_preemptions > 0);
  CHECK(counts.num_cached > 0);
}

TEST_CASE("Drafts change no output: an int8 cache, and a request that goes on after a death") {
  EngineDriverOptions base = BaseOptions("llama_plain", DType::kBf16, false);
  base.kv_format = KvFormat::kInt8;
  Counts counts;
  CompareWorlds(base, 5, &counts);

  Dice dice(6);
  const std::vector<TokenId> prompt = DrawRequests(40, &dice)[1].prompt;
  wire::SamplingParams params = GreedyParams(50);
  params.frequency_penalty = 0.05;
  EngineDriver plain(base);
  plain.Add("a", prompt, params);
  plain.RunAll();
  const std::vector<TokenId> whole = plain.transcript("a").token_ids;
  base.speculation = {.method = DraftMethod::kNgram,
                      .num_speculative_tokens = 4,
                      .prompt_lookup_min = 1,
                      .prompt_lookup_max = 3,
                      .adaptive = false};
  for (const int32_t num_before : {1, 17, 49}) {
    std::vector<TokenId> known = prompt;
    known.insert(known.end(), whole.begin(), whole.begin() + num_before);
    EngineDriver engine(base);
    engine.Add("a~1", known, params, num_before);
    engine.RunAll();
    CHECK(engine.transcript("a~1").token_ids ==
          std::vector<TokenId>(whole.begin() + num_before, whole.end()));
  }
}

}  // namespace
}  // namespace tandem
