// LoRA adapters against what PEFT computes of the same folders, and the folders that are refused:
// the set `lora`, over the models of the set `models`.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/adapters/adapter_reader.h"
#include "engine_core/models/rank_share.h"
#include "engine_core/models/registry.h"
#include "tests/support/engine/adapted_engine.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/golden_logits.h"
#include "tests/support/files/golden_folders.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

constexpr double kF32LogitTolerance = 2e-3;
constexpr int64_t kMaxRank = 64;

std::map<std::string, std::string> ByName(const char* kind) {
  std::map<std::string, std::string> folders;
  for (const std::string& folder : GoldenFolders(TANDEM_GOLDEN_DIR, kind, "goldens.json")) {
    folders[std::filesystem::path(folder).filename()] = folder;
  }
  return folders;
}

// Folder and base of each adapter; some lie beside their bases.
struct AdapterCase {
  std::string name, folder, base;
};
std::vector<AdapterCase> Cases() {
  const auto models = ByName("models");
  std::vector<AdapterCase> cases;
  for (const auto& [name, folder] : ByName("lora")) {
    const json goldens = ReadGoldens(folder);
    cases.push_back({name, folder, models.at(goldens["base"])});
  }
  for (const auto& [name, base] : models) {
    for (const auto& entry : std::filesystem::directory_iterator(base)) {
      if (!std::filesystem::exists(entry.path() / "adapter_config.json")) continue;
      cases.push_back({name + "/" + entry.path().filename().string(), entry.path(), base});
    }
  }
  REQUIRE(!cases.empty());
  return cases;
}

SharedAdapter ReadOrDie(const AdapterReader& reader, const std::string& folder) {
  StatusOr<ReadAdapter> adapter = reader.Read("x", folder);
  INFO(folder << ": " << adapter.status().ToString());
  REQUIRE(adapter.ok());
  return adapter->weights;
}

void CheckLogits(bool reference, DType dtype) {
  for (const AdapterCase& c : Cases()) {
    const json goldens = ReadGoldens(c.folder);
    const GoldenLogits golden_logits(c.folder);
    for (const json& prompt : goldens["prompts"]) {
      const int index = prompt["index"];
      CAPTURE(c.name, index);
      if (dtype == DType::kBf16 && !prompt.contains("bf16_max_abs_diff")) continue;
      const auto backend = MakeTestBackend(reference, dtype, 2);
      const auto rows =
          AllLogits(ReadModelConfig(c.base), c.base, 256, backend.get(),
                    prompt["prompt_ids"].get<std::vector<int32_t>>(), {}, KvFormat::kCompute,
                    [&](const AdapterSites& sites, const Backend& of) {
                      return ReadOrDie(AdapterReader(&sites, &of, kMaxRank), c.folder);
                    });
      const double tolerance = dtype == DType::kF32
                                   ? kF32LogitTolerance
                                   : 2 * prompt["bf16_max_abs_diff"].get<double>() + 0.05;
      CHECK(MaxDifference(rows.back(), golden_logits.Get("f32." + std::to_string(index)).data()) <=
            tolerance);
      const std::string all = "f32_all." + std::to_string(index);
      if (dtype != DType::kF32 || !golden_logits.Has(all)) continue;
      const auto expected = golden_logits.Get(all);
      for (size_t p = 0; p < rows.size(); ++p) {
        CHECK(MaxDifference(rows[p], expected.data() + p * rows[p].size()) <= tolerance);
      }
    }
  }
}

// Rows [begin, begin + count) of a float32 matrix, of each the columns first, first + step, ...
FileTensor PartOf(const FileTensor& whole, const std::string& name, Slice rows, int64_t first = 0,
                  int64_t step = 1) {
  FileTensor part;
  part.name = name;
  const int64_t columns = whole.shape[1];
  for (int64_t r = rows.begin; r < rows.end(); ++r) {
    for (int64_t c = first; c < columns; c += step) {
      const auto at = static_cast<size_t>(r * columns + c) * sizeof(float);
      part.bytes.append(whole.bytes, at, sizeof(float));
    }
  }
  part.shape = {rows.count, columns / step};
  return part;
}

// PEFT's form for experts in one tensor, and the same numbers with a pair for each.
TEST_CASE("adapters: experts in a stack have the bits of experts apart") {
  const std::string model = TANDEM_GOLDEN_DIR "/models/qwen3_moe";
  const ModelConfig config = ReadModelConfig(model).value();
  const int64_t inner = config.moe_intermediate_size, hidden = config.hidden_size;
  const int64_t experts = config.num_experts, rank = 3;
  std::vector<FileTensor> stacked, apart;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (!config.IsMixture(layer)) continue;
    const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.experts";
    const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
      stacked.push_back(RandomTensor(prefix + name, std::move(shape), stacked.size() + 1));
      return stacked.back();
    };
    const FileTensor gate_up_a = add(".base_layer.lora_A.weight", {experts * rank, hidden});
    const FileTensor gate_up_b = add(".base_layer.lora_B.weight", {2 * inner, rank * experts});
    const FileTensor down_a = add(".lora_A.weight", {experts * rank, inner});
    const FileTensor down_b = add(".lora_B.weight", {hidden, rank * experts});
    for (int64_t e = 0; e < experts; ++e) {
      const std::string expert = prefix + "." + std::to_string(e) + ".";
      const Slice own = {e * rank, rank};
      const auto put = [&](const char* name, const FileTensor& a, const FileTensor& b, Slice rows) {
        apart.push_back(PartOf(a, expert + name + ".lora_A.weight", own));
        apart.push_back(PartOf(b, expert + name + ".lora_B.weight", rows, e, experts));
      };
      put("gate_proj", gate_up_a, gate_up_b, {0, inner});
      put("up_proj", gate_up_a, gate_up_b, {inner, inner});
      put("down_proj", down_a, down_b, {0, hidden});
    }
  }
  const TempFolder folder;
  WriteAdapter(folder, "apart", AdapterConfigText(rank, 9), apart);
  WriteAdapter(folder, "stacked", AdapterConfigText(rank, 9), stacked);
  for (const RankCounts& ranks : {RankCounts{}, RankCounts{2, 2}}) {
    AdapterSites sites;
    EngineDriverOptions options;
    options.model_dir = model;
    options.ranks = ranks;
    options.adapter_sites = &sites;
    EngineDriver engine(options);
    for (const char* name : {"none", "apart", "stacked"}) {
      Adapter adapter;
      if (std::string_view(name) != "none") {
        const AdapterId id = name[0] == 'a' ? 1 : 2;
        const ReadAdapter read = ReadOnAllRanks(sites, &engine, folder.PathOf(name), id, rank);
        adapter = {
            .id = id, .name = name, .path = name, .digest = read.digest, .weights = read.weights};
      }
      wire::SamplingParams params = GreedyParams(8);
      params.logprobs = 5;
      engine.Add(name, {5, 9, 40, 41, 42, 77}, params, 0, adapter);
    }
    engine.RunAll();
    CHECK(engine.transcript("stacked").rows == engine.transcript("apart").rows);
    CHECK_FALSE(engine.transcript("stacked").rows == engine.transcript("none").rows);
  }
}

TEST_CASE("adapter goldens: float32 logits on the reference backend") {
  CheckLogits(/*reference=*/true, DType::kF32);
}

TEST_CASE("adapter goldens: float32 logits on the cpu backend") {
  CheckLogits(/*reference=*/false, DType::kF32);
}

TEST_CASE("adapter goldens: bfloat16 logits on the cpu backend") {
  CheckLogits(/*reference=*/false, DType::kBf16);
}

// A first difference is accepted only where the two best logits are close.
void CheckGreedy(const json& prompt, const std::vector<TokenId>& got) {
  const auto expected = prompt["greedy_ids"].get<std::vector<TokenId>>();
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (got[i] == expected[i]) continue;
    CAPTURE(i, got[i], expected[i]);
    CHECK(prompt["greedy_margins"][i].get<double>() < 1e-3);
    return;
  }
}

struct Split {
  RankCounts ranks;
  bool splits_experts = false;
};

bool Allows(const ModelConfig& config, const Split& split) {
  if (split.splits_experts && config.num_experts == 0) return false;
  return CheckRanks(config, {.tensor_parallel_size = split.ranks.tensor,
                             .pipeline_parallel_size = split.ranks.pipeline,
                             .splits_experts = split.splits_experts})
      .ok();
}

// The base and all its adapters, over one rank or several.
void CheckOneBatch(const std::string& base, const std::vector<AdapterCase>& cases,
                   const Split& split) {
  AdapterSites sites;
  EngineDriverOptions options;
  options.model_dir = base;
  options.adapter_sites = &sites;
  options.max_num_batched_tokens = 96;
  options.max_num_seqs = 16;
  options.num_blocks = 256;
  options.ranks = split.ranks;
  options.splits_experts = split.splits_experts;
  EngineDriver engine(options);
  std::map<std::string, json> prompts;
  const auto add = [&](const std::string& folder, const Adapter& adapter) {
    const json goldens = ReadGoldens(folder);
    for (const json& prompt : goldens["prompts"]) {
      const std::string id = adapter.name + ":" + std::to_string(prompt["index"].get<int>());
      prompts[id] = prompt;
      engine.Add(id, prompt["prompt_ids"].get<std::vector<TokenId>>(),
                 GreedyParams(goldens["n_greedy"]), 0, adapter);
    }
  };
  add(base, {});
  AdapterId id = 0;
  for (const AdapterCase& c : cases) {
    ++id;
    add(c.folder, {.id = id,
                   .name = c.name,
                   .path = c.folder,
                   .weights = ReadOnAllRanks(sites, &engine, c.folder, id, kMaxRank).weights});
  }
  engine.RunAll();
  for (const auto& [request, prompt] : prompts) {
    CAPTURE(request);
    REQUIRE(engine.transcript(request).error.empty());
    CheckGreedy(prompt, engine.transcript(request).token_ids);
  }
}

TEST_CASE(
    "adapter goldens: a base and all its adapters in one batch write what each writes alone") {
  std::map<std::string, std::vector<AdapterCase>> by_base;
  for (const AdapterCase& c : Cases()) by_base[c.base].push_back(c);
  int num_stages = 0, num_experts = 0;
  for (const auto& [base, cases] : by_base) {
    for (const Split& split : {Split{}, Split{.ranks = {.pipeline = 2}},
                               Split{.ranks = {.tensor = 2}, .splits_experts = true}}) {
      if (!Allows(ReadModelConfig(base).value(), split)) continue;
      CAPTURE(base, split.ranks.tensor, split.ranks.pipeline, split.splits_experts);
      CheckOneBatch(base, cases, split);
      num_stages += split.ranks.pipeline > 1 ? 1 : 0;
      num_experts += split.splits_experts ? 1 : 0;
    }
  }
  CHECK(num_stages > 0);
  CHECK(num_experts > 0);
}

TEST_CASE(
    "adapter goldens: what vLLM's own loader was given is loaded or refused as it should be") {
  const auto whole = WholeGoldens();
  if (!whole) return;  // 40 folders that only the larger set has
  std::ifstream in(*whole + "/lora/refusals.json");
  REQUIRE(in);
  const json refusals = json::parse(in);
  const std::string base = ByName("models").at("llama_plain");
  AdapterSites sites;
  EngineDriverOptions options;
  options.model_dir = base;
  options.adapter_sites = &sites;
  EngineDriver engine(options);
  const AdapterReader reader(&sites, &engine.runner().backend(),
                             refusals["max_lora_rank"].get<int64_t>());
  for (const json& c : refusals["cases"]) {
    const std::string name = c["name"];
    const StatusOr<ReadAdapter> adapter = reader.Read("a", *whole + "/lora/refuse/" + name);
    CAPTURE(name, adapter.status().ToString());
    CHECK(adapter.ok() == (c["ours"] == "load"));
    const bool is_missing = name == "no_config" || name == "empty_folder";
    CHECK((adapter.status().code() == StatusCode::kNotFound) == is_missing);
  }
}

}  // namespace
}  // namespace tandem
