// Embedders, rerankers and classifiers against numbers of transformers and sentence-transformers:
// each folder of the set `embedding` holds a model, goldens.json and outputs.safetensors.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/random.h"
#include "engine_core/executor/pooler_head.h"
#include "engine_core/models/rank_share.h"
#include "engine_core/weights/dummy_weights.h"
#include "engine_core/weights/safetensors.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/engine/golden_logits.h"
#include "tests/support/engine/golden_pooling.h"
#include "tests/support/files/adapter_folder.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

std::vector<std::string> Folders() {
  return GoldenFolders(TANDEM_GOLDEN_DIR, "embedding", "goldens.json");
}

void CheckAll(bool reference, DType dtype) {
  for (const std::string& folder : Folders()) {
    const json goldens = ReadGoldens(folder);
    CAPTURE(folder);
    EngineDriverOptions options = PooledOptionsOf(folder, goldens);
    options.reference_backend = reference;
    options.dtype = dtype;
    CheckPooled(options, goldens);
  }
}

TEST_CASE("reference backend, float32: vectors and scores are those of the libraries") {
  CheckAll(true, DType::kF32);
}
TEST_CASE("cpu backend, float32: vectors and scores are those of the libraries") {
  CheckAll(false, DType::kF32);
}
TEST_CASE("cpu backend, bfloat16: vectors and scores are near those of the libraries") {
  CheckAll(false, DType::kBf16);
}

// Alone, in batches, and cut into chunks where the model allows it.
TEST_CASE("bits of a vector do not depend on the batch nor on chunks") {
  for (const std::string& folder : Folders()) {
    const json goldens = ReadGoldens(folder);
    CAPTURE(folder);
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      EngineDriverOptions options = PooledOptionsOf(folder, goldens);
      options.dtype = dtype;
      const auto together = PoolAll(options, goldens["cases"]);
      options.num_threads = 2;
      options.max_num_seqs = 1;
      CHECK(PoolAll(options, goldens["cases"]) == together);
      const auto config = ReadModelConfig(folder, options.hf_overrides);
      if (config->is_bidirectional) continue;
      options.max_num_seqs = 3;
      options.max_num_batched_tokens = 7;
      CHECK(PoolAll(options, goldens["cases"]) == together);
    }
  }
}

// Ranks that share layers, stages, both, and what they load again after a sleep.
TEST_CASE("bits of a vector do not depend on ranks") {
  int num_splits = 0;
  for (const std::string& folder : Folders()) {
    const json goldens = ReadGoldens(folder);
    EngineDriverOptions options = PooledOptionsOf(folder, goldens);
    const auto config = ReadModelConfig(folder, options.hf_overrides);
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      options.dtype = dtype;
      options.ranks = {};
      const auto whole = PoolAll(options, goldens["cases"]);
      for (const RankCounts& ranks :
           {RankCounts{.tensor = 2}, RankCounts{.pipeline = 2}, RankCounts{2, 2}}) {
        CAPTURE(folder, DTypeName(dtype), ranks.tensor, ranks.pipeline);
        if (!CheckRanks(*config, {ranks.tensor, ranks.pipeline}).ok()) continue;
        ++num_splits;
        options.ranks = ranks;
        options.can_sleep = true;
        EngineDriver engine(options);
        CHECK(PoolWith(engine, goldens["cases"]) == whole);
        REQUIRE(engine.scheduler().ResetPrefixCache(/*preempt_running=*/false, 0));
        const MemoryParts all = {.weights = true, .kv_cache = true};
        REQUIRE(engine.runner().Release(all, /*rereads=*/true).ok());
        REQUIRE(engine.runner().Restore(all).ok());
        CHECK(PoolWith(engine, goldens["cases"]) == whole);
        if (config->is_bidirectional) continue;
        EngineDriverOptions cut = options;
        cut.max_num_seqs = 3;
        cut.max_num_batched_tokens = 7;
        CHECK(PoolAll(cut, goldens["cases"]) == whole);
      }
    }
  }
  CHECK(num_splits >= 4 * 2 * 3);
}

TEST_CASE("a row for each token: ranks and stages change no bit") {
  const auto folders = Folders();
  const std::string& folder = folders.front();
  const json goldens = ReadGoldens(folder);
  EngineDriverOptions options = PooledOptionsOf(folder, goldens);
  options.dtype = DType::kBf16;
  options.pooling.pooler_config =
      goldens["task"] == "embed" ? R"({"task": "token_embed"})" : R"({"task": "token_classify"})";
  const auto whole = PoolAll(options, goldens["cases"]);
  options.ranks = {2, 2};
  CHECK(PoolAll(options, goldens["cases"]) == whole);
}

// What a pooling makes of the rows of a text's tokens.
std::vector<double> Pooled(const std::string& type, const std::vector<float>& rows, size_t size) {
  const size_t count = rows.size() / size;
  std::vector<double> sum(size, type == "max" ? -1e30 : 0.0);
  for (size_t t = 0; t < count; ++t) {
    if ((type == "CLS" && t > 0) || (type == "LAST" && t + 1 < count)) continue;
    const double weight = type == "weightedmean" ? static_cast<double>(t + 1) : 1.0;
    for (size_t i = 0; i < size; ++i) {
      const double number = rows[t * size + i];
      sum[i] = type == "max" ? std::max(sum[i], number) : sum[i] + weight * number;
    }
  }
  const auto n = static_cast<double>(count);
  const double divisor = type == "MEAN"                   ? n
                         : type == "weightedmean"         ? n * (n + 1) / 2
                         : type == "mean_sqrt_len_tokens" ? std::sqrt(n)
                                                          : 1.0;
  for (double& number : sum) number /= divisor;
  return sum;
}

// A decoder that comes without any of a pooler's files.
TEST_CASE("poolings are over all chunks, and the first token over none but the first") {
  const auto folders = GoldenFolders(TANDEM_GOLDEN_DIR, "models", "goldens.json");
  const auto llama = std::find_if(folders.begin(), folders.end(), [](const std::string& folder) {
    return std::filesystem::path(folder).filename().string().find("llama") != std::string::npos;
  });
  REQUIRE(llama != folders.end());
  std::vector<TokenId> prompt;
  for (int i = 0; i < 50; ++i) prompt.push_back(3 + i * 7 % 60);
  const json cases = json::array({{{"token_ids", prompt}}});
  EngineDriverOptions options;
  options.model_dir = *llama;
  const auto pool = [&](json config, bool use_activation, int32_t max_num_batched_tokens) {
    config["use_activation"] = use_activation;
    options.pooling = {"pooling", "embed", config.dump()};
    options.max_num_batched_tokens = max_num_batched_tokens;
    return PoolAll(options, cases)[0];
  };
  const std::vector<float> rows = pool({{"task", "token_embed"}}, false, 256);
  for (const char* type : {"LAST", "CLS", "MEAN", "max", "mean_sqrt_len_tokens", "weightedmean"}) {
    CAPTURE(type);
    const json config = {{"pooling_type", type}};
    const std::vector<float> whole = pool(config, false, 256);
    CHECK(pool(config, false, 9) == whole);
    const std::vector<double> want = Pooled(type, rows, whole.size());
    for (size_t i = 0; i < whole.size(); ++i) CHECK(whole[i] == Approx(want[i]).margin(1e-5));
    double squares = 0;
    for (const float value : pool(config, true, 9)) squares += static_cast<double>(value) * value;
    CHECK(squares == Approx(1).margin(1e-5));
  }
}

void Normalize(float* row, size_t size) {
  double squares = 0;
  for (size_t i = 0; i < size; ++i) squares += static_cast<double>(row[i]) * row[i];
  for (size_t i = 0; i < size; ++i) row[i] = static_cast<float>(row[i] / std::sqrt(squares));
}

// The states that transformers has for each token, with length 1.
TEST_CASE("a row for each token: the states of the libraries, whole or in chunks") {
  for (const std::string& folder : Folders()) {
    const json goldens = ReadGoldens(folder);
    const GoldenLogits outputs(folder, "outputs.safetensors");
    if (goldens["task"] != "embed" || std::filesystem::exists(folder + "/2_Dense")) continue;
    CAPTURE(folder);
    EngineDriverOptions options = PooledOptionsOf(folder, goldens);
    options.dtype = DType::kF32;
    options.pooling.pooler_config = R"({"task": "token_embed", "use_activation": true})";
    const auto together = PoolAll(options, goldens["cases"]);
    for (const size_t i : {size_t{1}, size_t{11}}) {
      std::vector<float> want = outputs.Get("hidden." + std::to_string(i));
      REQUIRE(together[i].size() == want.size());
      const size_t size = want.size() / goldens["cases"][i]["token_ids"].size();
      for (size_t at = 0; at < want.size(); at += size) Normalize(&want[at], size);
      CHECK(MaxDifference(together[i], want.data()) < 1e-4);
    }
    if (ReadModelConfig(folder, options.hf_overrides)->is_bidirectional) continue;
    options.max_num_seqs = 3;
    options.max_num_batched_tokens = 7;
    CHECK(PoolAll(options, goldens["cases"]) == together);
  }
}

// As made_models/colbert.py makes them.
std::unique_ptr<Weights> MakeColbertWeights(uint64_t seed) {
  return MakeWeights(
      seed, [](uint64_t key, std::string_view name, bool is_vector, std::span<Bf16> values) {
        const bool is_scale = is_vector && !name.ends_with(".bias");
        for (size_t i = 0; i < values.size(); ++i) {
          const float level = static_cast<float>(MixBits(key + i) & 0xff) - 128;
          values[i] = ToBf16(is_scale ? (256 + level / 2) / 256 : level / 512);
        }
      });
}

// Their rows have length 1; some of them are recorded.
void CheckColbert(const std::string& folder, Weights* weights, const json& goldens,
                  const json& expected) {
  const json cases = json::array({{{"token_ids", goldens["prompt_ids"]}}});
  for (const RankCounts& ranks : {RankCounts{}, RankCounts{.tensor = 2}, RankCounts{2, 2}}) {
    CAPTURE(ranks.tensor, ranks.pipeline);
    EngineDriverOptions options;
    options.model_dir = folder;
    options.weights = weights;
    options.dtype = DType::kF32;
    options.max_model_len = 64;
    options.ranks = ranks;
    const std::vector<float> rows = PoolAll(options, cases)[0];
    constexpr size_t kSize = 8;
    REQUIRE(rows.size() == kSize * goldens["prompt_ids"].size());
    std::vector<float> some;
    for (size_t row = 0; row < rows.size() / kSize; row += goldens["every"].get<size_t>()) {
      const auto begin = rows.begin() + static_cast<ptrdiff_t>(row * kSize);
      some.insert(some.end(), begin, begin + kSize);
    }
    const auto want = expected.get<std::vector<float>>();
    REQUIRE(some.size() == want.size());
    CHECK(MaxDifference(some, want.data()) < 1e-4);
  }
}

// transformers' states and the projection (made_models/colbert.py).
TEST_CASE("ColBERT's classes make a row for each token") {
  std::ifstream file(TANDEM_GOLDEN_DIR "/made_models/colbert.json");
  const json goldens = json::parse(file);
  const auto weights = MakeColbertWeights(goldens["seed"]);
  for (const json& one : goldens["cases"]) {
    CAPTURE(one["config"].dump());
    const TempFolder folder;
    folder.Write("config.json", one["config"].dump());
    CheckColbert(folder.path(), weights.get(), goldens, one["rows"]);
  }
}

// As published: names with a prefix, and the number of columns is that of the matrix alone.
TEST_CASE("ColBERT's projection has the rows of its matrix") {
  std::ifstream file(TANDEM_GOLDEN_DIR "/made_models/colbert.json");
  const json goldens = json::parse(file);
  const auto weights = MakeColbertWeights(goldens["seed"]);
  json config = goldens["cases"][0]["config"];
  config.erase("dim");
  const int64_t hidden = config["hidden_size"], inner = config["intermediate_size"];
  std::vector<FileTensor> tensors;
  const auto add = [&](const std::string& prefix, const std::string& name, int64_t rows,
                       int64_t columns) {
    const WeightTensor tensor = weights->Get(name, rows, columns).value();
    FileTensor& stored = tensors.emplace_back();
    stored.name = prefix + name;
    stored.dtype = "BF16";
    stored.shape = rows == 0 ? std::vector<int64_t>{columns} : std::vector<int64_t>{rows, columns};
    stored.bytes.assign(static_cast<const char*>(tensor.view().data),
                        static_cast<size_t>(tensor.view().NumBytes()));
  };
  const auto add_pair = [&](const std::string& name, int64_t rows, int64_t columns) {
    add("bert.", name + ".weight", rows, columns);
    add("bert.", name + ".bias", 0, rows == 0 ? columns : rows);
  };
  const auto add_table = [&](const std::string& name, const char* size) {
    add("bert.", "embeddings." + name + "_embeddings.weight", config[size], hidden);
  };
  add_table("word", "vocab_size");
  add_table("position", "max_position_embeddings");
  add_table("token_type", "type_vocab_size");
  add_pair("embeddings.LayerNorm", 0, hidden);
  for (int i = 0; i < config["num_hidden_layers"].get<int>(); ++i) {
    const std::string layer = "encoder.layer." + std::to_string(i);
    for (const char* name : {"self.query", "self.key", "self.value", "output.dense"}) {
      add_pair(layer + ".attention." + name, hidden, hidden);
    }
    add_pair(layer + ".attention.output.LayerNorm", 0, hidden);
    add_pair(layer + ".intermediate.dense", inner, hidden);
    add_pair(layer + ".output.dense", hidden, inner);
    add_pair(layer + ".output.LayerNorm", 0, hidden);
  }
  add("", "linear.weight", 8, hidden);
  const TempFolder folder;
  folder.Write("config.json", config.dump());
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  CheckColbert(folder.path(), nullptr, goldens, goldens["cases"][0]["rows"]);
  // A checkpoint without it.
  tensors.pop_back();
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  const auto opened = OpenSafetensors(folder.path()).value();
  const auto pooling = ReadPoolerConfig(folder.path(), {}).value();
  CHECK_THAT(PoolerHead::Load(folder.path(), ReadModelConfig(folder.path()).value(), *pooling,
                              opened.get())
                 .status()
                 .message(),
             Catch::Contains("projection of ColBERT") && Catch::Contains("linear.weight"));
}

TEST_CASE("a row for each token: that of the pooled one has the text's scores") {
  for (const std::string& folder : Folders()) {
    const json goldens = ReadGoldens(folder);
    if (goldens["task"] == "embed") continue;
    CAPTURE(folder);
    EngineDriverOptions options = PooledOptionsOf(folder, goldens);
    options.dtype = DType::kF32;
    const auto whole = PoolAll(options, goldens["cases"]);
    options.pooling.pooler_config = R"({"task": "token_classify"})";
    const auto rows = PoolAll(options, goldens["cases"]);
    const bool is_first = ReadModelConfig(folder, options.hf_overrides)->is_bidirectional;
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t size = whole[i].size();
      REQUIRE(rows[i].size() == size * goldens["cases"][i]["token_ids"].size());
      const auto begin = is_first ? rows[i].begin() : rows[i].end() - static_cast<ptrdiff_t>(size);
      CHECK(std::equal(whole[i].begin(), whole[i].end(), begin));
    }
  }
}

}  // namespace
}  // namespace tandem
