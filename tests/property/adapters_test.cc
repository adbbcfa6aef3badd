// Requests with several adapters, and without one, in one batch: each gets the bits that it gets
// alone, with every kind of base matrix, drafts, asynchronous steps, prefix hits and preemptions.
// Each run draws its conditions from a seed, which is printed on failure.

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine_core/weights/safetensors_header.h"
#include "tests/support/dice.h"
#include "tests/support/engine/adapted_engine.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/files/golden_folders.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Sent {
  TestRequest request;
  size_t adapter = 0;
};

std::vector<Sent> DrawRequests(Dice* dice) {
  std::vector<TokenId> shared;
  for (int i = 0; i < 100; ++i) shared.push_back(dice->Roll(3, 20));
  std::vector<Sent> requests;
  for (int i = 0; i < 8; ++i) {
    Sent& sent = requests.emplace_back();
    sent.adapter = static_cast<size_t>(i % (kNumTestAdapters + 1));
    TestRequest& r = sent.request;
    r.id = "request-" + std::to_string(i);
    r.prompt.assign(shared.begin(), shared.begin() + dice->Roll(1, 100));
    for (int32_t own = dice->Roll(1, 30); own > 0; --own) r.prompt.push_back(dice->Roll(3, 500));
    r.params = GreedyParams(dice->Roll(4, 30));
    r.params.logprobs = 2;
    if (i % 3 == 1) {
      r.params.temperature = 0.7;
      r.params.seed = dice->Roll(0, 1 << 20);
    }
    if (i == 5) r.params.prompt_logprobs = 1;
  }
  return requests;
}

void CheckSame(const Transcript& got, const Transcript& expected) {
  REQUIRE(got.error.empty());
  CHECK(got.token_ids == expected.token_ids);
  CHECK(got.logprobs == expected.logprobs);
  CHECK(got.prompt_logprobs == expected.prompt_logprobs);
}

void Check(EngineDriverOptions options, uint64_t seed) {
  CAPTURE(options.model_dir, seed, options.async_scheduling, options.speculation.drafts());
  Dice dice(seed);
  const std::vector<Sent> requests = DrawRequests(&dice);
  std::vector<Transcript> alone;
  {
    EngineDriverOptions plain = options;
    plain.enable_prefix_caching = false;
    plain.speculation = {};
    plain.async_scheduling = false;
    AdaptedEngine engine(plain, seed);
    for (const Sent& sent : requests) {
      engine.driver->Add(sent.request.id, sent.request.prompt, sent.request.params, 0,
                         engine.adapters[sent.adapter]);
      engine.driver->RunAll();
      alone.push_back(engine.driver->transcript(sent.request.id));
    }
  }
  options.num_threads = dice.Roll(1, 3);
  options.max_num_seqs = dice.Roll(3, 8);
  options.max_num_batched_tokens = dice.Roll(40, 200);
  options.num_blocks = 256 / 32 + 6;  // too few for all
  AdaptedEngine engine(options, seed);
  int64_t num_preemptions = 0, num_cached = 0;
  for (int round = 0; round < 2; ++round) {
    engine.driver->Forget();
    for (const Sent& sent : requests) {
      engine.driver->Add(sent.request.id, sent.request.prompt, sent.request.params, 0,
                         engine.adapters[sent.adapter]);
      for (int steps = dice.Roll(0, 2); steps > 0; --steps) engine.driver->Step();
    }
    engine.driver->RunAll();
    for (size_t i = 0; i < requests.size(); ++i) {
      CAPTURE(round, i, requests[i].adapter);
      const Transcript& got = engine.driver->transcript(requests[i].request.id);
      CheckSame(got, alone[i]);
      num_preemptions += got.num_preemptions;
      num_cached += got.num_cached_tokens;
    }
  }
  CHECK(num_preemptions + num_cached > 0);
  // The adapters did change something.
  AdaptedEngine base(options, seed);
  bool differs = false;
  for (size_t i = 0; i < requests.size(); ++i) {
    base.driver->Add(requests[i].request.id, requests[i].request.prompt,
                     requests[i].request.params);
    base.driver->RunAll();
    const Transcript& got = base.driver->transcript(requests[i].request.id);
    const bool is_same = got.logprobs == alone[i].logprobs;
    if (requests[i].adapter == 0) CHECK(is_same);
    differs = differs || !is_same;
  }
  CHECK(differs);
}

EngineDriverOptions Base(const std::string& model, DType dtype) {
  EngineDriverOptions options;
  options.model_dir = TANDEM_GOLDEN_DIR "/models/" + model;
  options.dtype = dtype;
  return options;
}

TEST_CASE("adapters: each request in a mixed batch has the bits that it has alone") {
  for (uint64_t seed = 1; seed <= 3; ++seed) Check(Base("llama_plain", DType::kBf16), seed);
  Check(Base("llama_plain", DType::kF32), 10);
  Check(Base("gemma2", DType::kBf16), 20);
  Check(Base("phi3_partial_rotary", DType::kBf16), 30);
  Check(Base("qwen3_moe", DType::kBf16), 40);
  Check(Base("deepseek_v2", DType::kBf16), 50);
  Check(Base("qwen3_5_text", DType::kBf16), 53);
  Check(Base("lfm2", DType::kBf16), 52);
}

// Each rank has the pairs of its layers and experts, or the rows that go with its rows of a matrix.
TEST_CASE("adapters: ranks that share a model have the bits of one") {
  struct Case {
    const char* model;
    DType dtype;
    RankCounts ranks;
    const char* quantization = "none";
    bool splits_experts = false;
  };
  constexpr RankCounts kTwo = {.tensor = 2}, kStages = {.pipeline = 2},
                       kBoth = {.tensor = 2, .pipeline = 2};
  for (const Case& c :
       {Case{"llama_plain", DType::kBf16, kTwo},
        Case{"llama_plain", DType::kF32, {.tensor = 4}},  // with copied KV heads
        Case{"llama_plain", DType::kBf16, kTwo, "int8"}, Case{"qwen3", DType::kBf16, kBoth},
        Case{"gemma2", DType::kBf16, kTwo}, Case{"phi3_partial_rotary", DType::kBf16, kTwo},
        Case{"mixtral", DType::kBf16, kTwo}, Case{"qwen3_moe", DType::kBf16, kTwo},
        Case{"deepseek_v2", DType::kBf16, kTwo}, Case{"llama_plain", DType::kBf16, kStages},
        Case{"qwen2", DType::kF32, kStages}, Case{"llama_plain", DType::kBf16, {.pipeline = 3}},
        Case{"gemma2", DType::kBf16, kBoth}, Case{"mixtral", DType::kBf16, kTwo, "none", true},
        Case{"qwen3_moe", DType::kBf16, kTwo, "none", true},
        Case{"deepseek_v2", DType::kBf16, kTwo, "none", true},
        Case{"qwen3_moe", DType::kBf16, kBoth, "none", true},
        Case{"deepseek_v2", DType::kBf16, kStages}}) {
    CAPTURE(c.model, DTypeName(c.dtype), c.ranks.tensor, c.ranks.pipeline, c.quantization,
            c.splits_experts);
    constexpr uint64_t kSeed = 70;
    Dice dice(kSeed);
    const std::vector<Sent> requests = DrawRequests(&dice);
    EngineDriverOptions options = Base(c.model, c.dtype);
    options.formats = WeightFormatsOf(c.quantization);
    options.max_num_batched_tokens = 60;
    const auto run = [&](AdaptedEngine& engine) {
      for (const Sent& sent : requests) {
        engine.driver->Add(sent.request.id, sent.request.prompt, sent.request.params, 0,
                           engine.adapters[sent.adapter]);
      }
      engine.driver->RunAll();
    };
    AdaptedEngine one(options, kSeed);
    run(one);
    options.ranks = c.ranks;
    options.splits_experts = c.splits_experts;
    AdaptedEngine split(options, one);
    run(split);
    for (const Sent& sent : requests) {
      CAPTURE(sent.request.id, sent.adapter);
      CheckSame(split.driver->transcript(sent.request.id), one.driver->transcript(sent.request.id));
    }
  }
}

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// A model with a tied head, and the same with the embedding stored again as its head.
void WriteUntied(const std::string& tied, const TempFolder& folder) {
  nlohmann::json config = nlohmann::json::parse(ReadText(tied + "/config.json"));
  REQUIRE(config["tie_word_embeddings"] == true);
  config["tie_word_embeddings"] = false;
  folder.Write("untied/config.json", config.dump());
  const std::string text = ReadText(tied + "/model.safetensors");
  const auto file = std::as_bytes(std::span(text));
  const auto header = ParseSafetensorsHeader(file);
  REQUIRE(header.ok());
  nlohmann::json files;
  for (const auto& [name, entry] : header->entries) files[name] = "model.safetensors";
  files["lm_head.weight"] = "head.safetensors";
  const SafetensorsEntry& entry = header->entries.at("model.embed_tokens.weight");
  const auto bytes = header->DataOf(entry, file);
  const std::string head(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  folder.Write("untied/model.safetensors", text);
  folder.Write("untied/head.safetensors",
               SafetensorsBytes({{"lm_head.weight", entry.shape, entry.dtype, head}}));
  folder.Write("untied/model.safetensors.index.json",
               nlohmann::json({{"weight_map", files}}).dump());
}

// A folder's weights with an adapter's products added to its matrices.
class MergedWeights final : public Weights {
 public:
  MergedWeights(std::unique_ptr<Weights> base, const std::vector<FileTensor>& pairs, float scale)
      : base_(std::move(base)), scale_(scale) {
    for (const FileTensor& tensor : pairs) tensors_[tensor.name] = &tensor;
  }

  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    ASSIGN_OR_RETURN(WeightTensor stored, base_->Get(name, rows, columns));
    const std::string module = "base_model.model." + std::string(name.substr(0, name.rfind('.')));
    const auto a = tensors_.find(module + ".lora_A.weight");
    if (rows == 0 || a == tensors_.end()) return stored;
    const Tensor shape(nullptr, DType::kF32, {rows, columns});
    std::vector<std::byte> memory(static_cast<size_t>(rows * columns) * sizeof(float));
    auto* const out = reinterpret_cast<float*>(memory.data());
    ConvertTensor(Tensor(out, DType::kF32, {rows, columns}), stored.view());
    AddProduct(*a->second, *tensors_.at(module + ".lora_B.weight"), rows, columns, out);
    merged_.insert(module);
    return WeightTensor(shape, std::move(memory));
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                      int64_t rows, int64_t columns) override {
    return base_->GetFromStack(name, index, count, rows, columns);
  }
  bool Has(std::string_view name) const override { return base_->Has(name); }
  size_t num_merged() const { return merged_.size(); }

 private:
  void AddProduct(const FileTensor& a, const FileTensor& b, int64_t rows, int64_t columns,
                  float* out) const {
    const auto* const a_numbers = reinterpret_cast<const float*>(a.bytes.data());
    const auto* const b_numbers = reinterpret_cast<const float*>(b.bytes.data());
    const int64_t rank = a.shape[0];
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        double sum = 0;
        for (int64_t r = 0; r < rank; ++r) {
          sum += double{b_numbers[row * rank + r]} * a_numbers[r * columns + column];
        }
        out[row * columns + column] += static_cast<float>(scale_ * sum);
      }
    }
  }

  std::unique_ptr<Weights> base_;
  const float scale_;
  std::map<std::string, const FileTensor*> tensors_;
  std::set<std::string> merged_;
};

// A pair for each matrix that one of the file is; those of tables are apart, where they are tied.
std::vector<FileTensor> PairsOfMatrices(const AdapterSites& sites, int64_t rank) {
  std::vector<ModuleShape> modules;
  std::set<std::string> seen = {"lm_head"};
  for (const AdapterSite& site : sites.all()) {
    for (const AdapterSite::Part& part : site.parts) {
      if (site.is_embedding || !seen.insert(part.module).second) continue;
      modules.push_back({part.module, part.module_rows, site.columns});
    }
  }
  return RandomPairs(modules, rank, 90);
}

// Attention of several kinds, states of a scan and of a short convolution, experts; where the whole
// goldens are, layers whose heads differ, share caches and take inputs, in ranks, too.
TEST_CASE("adapters: a pair adds what its product adds to the matrix") {
  std::vector<EngineDriverOptions> cases;
  for (const char* model :
       {"llama_plain", "gpt_neox", "gemma3_text", "olmo2", "qwen3_5_text", "lfm2", "mixtral"}) {
    cases.push_back(Base(model, DType::kF32));
  }
  if (const auto goldens = WholeGoldens()) {
    for (const RankCounts& ranks : {RankCounts{}, RankCounts{2, 2}}) {
      cases.push_back(Base("", DType::kF32));
      cases.back().model_dir = *goldens + "/models2/gemma4_text";
      cases.back().ranks = ranks;
    }
  }
  for (EngineDriverOptions& options : cases) {
    CAPTURE(options.model_dir, options.ranks.tensor);
    constexpr int64_t kRank = 4;
    constexpr float kScale = 2;
    AdapterSites sites;
    options.adapter_sites = &sites;
    EngineDriver adapted(options);
    std::vector<FileTensor> pairs = PairsOfMatrices(sites, kRank);
    for (const auto& other : adapted.other_ranks()) {
      for (FileTensor& pair : PairsOfMatrices(other->sites, kRank)) {
        const auto has = [&](const FileTensor& one) { return one.name == pair.name; };
        if (std::ranges::none_of(pairs, has)) pairs.push_back(std::move(pair));
      }
    }
    const TempFolder folder;
    WriteAdapter(folder, "a", AdapterConfigText(kRank, kScale * kRank), pairs);
    const ReadAdapter read =
        ReadOnAllRanks(sites, &adapted, folder.PathOf("a"), 1, options.max_lora_rank);
    MergedWeights weights(OpenSafetensors(options.model_dir).value(), pairs, kScale);
    options.weights = &weights;
    options.adapter_sites = nullptr;
    options.ranks = {};
    EngineDriver merged(options);
    CHECK(weights.num_merged() == pairs.size() / 2);
    TestRequest request;
    for (int i = 0; i < 40; ++i) request.prompt.push_back(3 + i * 7 % 300);
    request.params = GreedyParams(12);
    request.params.logprobs = 0;
    adapted.Add("a", request.prompt, request.params, 0,
                {.id = 1, .name = "a", .path = "a", .weights = read.weights});
    adapted.RunAll();
    merged.Add("a", request.prompt, request.params);
    merged.RunAll();
    const Transcript &got = adapted.transcript("a"), &expected = merged.transcript("a");
    REQUIRE(got.error.empty());
    CHECK(got.token_ids == expected.token_ids);
    REQUIRE(got.logprobs.size() == expected.logprobs.size());
    for (size_t i = 0; i < got.logprobs.size(); ++i) {
      CHECK(got.logprobs[i] == Approx(expected.logprobs[i]).margin(1e-3));
    }
  }
}

TEST_CASE("adapters: a tied head has a pair of its own, as one apart has") {
  const TempFolder folder;
  EngineDriverOptions options = Base("qwen3", DType::kBf16);
  WriteUntied(options.model_dir, folder);
  constexpr uint64_t kSeed = 80;
  AdaptedEngine tied(options, kSeed);
  options.model_dir = folder.PathOf("untied");
  AdaptedEngine apart(options, tied);
  Dice dice(kSeed);
  for (const Sent& sent : DrawRequests(&dice)) {
    CAPTURE(sent.request.id, sent.adapter);
    for (AdaptedEngine* engine : {&tied, &apart}) {
      engine->driver->Add(sent.request.id, sent.request.prompt, sent.request.params, 0,
                          engine->adapters[sent.adapter]);
      engine->driver->RunAll();
    }
    CheckSame(tied.driver->transcript(sent.request.id), apart.driver->transcript(sent.request.id));
  }
  CHECK(tied.num_modules() == apart.num_modules());
}

TEST_CASE("adapters: the same over integer matrices") {
  for (const char* quantization : {"int8", "int4"}) {
    EngineDriverOptions options = Base("llama_plain", DType::kBf16);
    options.formats = WeightFormatsOf(quantization);
    Check(options, 50);
    options = Base("qwen2", DType::kBf16);
    options.formats = WeightFormatsOf(quantization);
    Check(options, 51);
  }
}

TEST_CASE("adapters: the same with drafts and with asynchronous steps") {
  EngineDriverOptions options = Base("llama_plain", DType::kBf16);
  options.async_scheduling = true;
  Check(options, 60);
  for (const char* config :
       {R"({"method": "ngram", "num_speculative_tokens": 3, "adaptive": false})",
        R"({"method": "suffix", "num_speculative_tokens": 4, "adaptive": false})"}) {
    options.speculation = ParseSpeculativeConfig(config).value();
    Check(options, 61);
    options.async_scheduling = false;
    Check(options, 62);
  }
}

}  // namespace
}  // namespace tandem
