#include "tests/support/engine/golden_pooling.h"

#include <algorithm>
#include <cmath>

#include "proto_msgpack/pooling_params.h"
#include "tests/support/engine/golden_logits.h"

#include <catch2/catch.hpp>

namespace tandem {

using nlohmann::json;

namespace {

wire::PoolingParams ParamsOf(const json& test_case) {
  wire::PoolingParams params;
  if (!test_case.contains("token_type_ids")) return params;
  const auto types = test_case["token_type_ids"].get<std::vector<int>>();
  const auto second = std::find(types.begin(), types.end(), 1);
  params.extra_kwargs = wire::PackedTokenTypes(second - types.begin());
  return params;
}

}  // namespace

EngineDriverOptions PooledOptionsOf(const std::string& folder, const json& goldens) {
  EngineDriverOptions options;
  options.model_dir = folder;
  options.max_model_len = options.max_num_batched_tokens = 512;
  options.num_blocks = 192;
  json overrides = goldens.value("hf_overrides", json::object());
  if (!goldens.value("matryoshka", json::array()).empty()) overrides["is_matryoshka"] = true;
  if (!overrides.empty()) options.hf_overrides = overrides.dump();
  return options;
}

std::vector<std::vector<float>> PoolWith(EngineDriver& engine, const json& cases,
                                         std::optional<int64_t> dimensions) {
  engine.Forget();
  for (size_t i = 0; i < cases.size(); ++i) {
    wire::PoolingParams params = ParamsOf(cases[i]);
    params.dimensions = dimensions;
    engine.AddPooled(std::to_string(i), cases[i]["token_ids"].get<std::vector<TokenId>>(), params);
  }
  engine.RunAll();
  std::vector<std::vector<float>> results;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Transcript& transcript = engine.transcript(std::to_string(i));
    REQUIRE(transcript.error.empty());
    REQUIRE(transcript.finish_reason == wire::FinishReason::kStop);
    CHECK(transcript.token_ids.empty());
    results.push_back(transcript.pooled);
  }
  return results;
}

std::vector<std::vector<float>> PoolAll(const EngineDriverOptions& options, const json& cases,
                                        std::optional<int64_t> dimensions) {
  EngineDriver engine(options);
  return PoolWith(engine, cases, dimensions);
}

namespace {

double Cosine(const std::vector<float>& a, const float* b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

void CheckEmbeddings(const EngineDriverOptions& options, const json& goldens, bool is_f32) {
  const GoldenLogits outputs(options.model_dir, "outputs.safetensors");
  const json& cases = goldens["cases"];
  const std::vector<float> expected = outputs.Get("embeddings");
  const size_t size = expected.size() / cases.size();
  const auto results = PoolAll(options, cases);
  for (size_t i = 0; i < results.size(); ++i) {
    CAPTURE(i);
    REQUIRE(results[i].size() == size);
    const float* want = expected.data() + i * size;
    if (is_f32) {
      CHECK(MaxDifference(results[i], want) < 1e-4);
    } else {
      CHECK(Cosine(results[i], want) > 0.999);
    }
  }
  if (!is_f32) return;
  for (const json& dimensions : goldens.value("matryoshka", json::array())) {
    const auto shorter = PoolAll(options, cases, dimensions.get<int64_t>());
    for (size_t i = 0; i < shorter.size(); ++i) {
      const auto want = outputs.Get("matryoshka" + std::to_string(dimensions.get<int>()) + "." +
                                    std::to_string(i));
      REQUIRE(shorter[i].size() == want.size());
      CHECK(MaxDifference(shorter[i], want.data()) < 1e-4);
    }
  }
}

void CheckScores(const EngineDriverOptions& options, const json& goldens, bool is_f32) {
  const json& cases = goldens["cases"];
  const auto results = PoolAll(options, cases);
  const double tolerance = is_f32 ? 1e-4 : goldens["activation"] == "identity" ? 0.1 : 0.02;
  for (size_t i = 0; i < results.size(); ++i) {
    CAPTURE(i);
    const json& score = cases[i]["score"];
    const auto want =
        score.is_array() ? score.get<std::vector<float>>() : std::vector<float>{score.get<float>()};
    REQUIRE(results[i].size() == want.size());
    CHECK(MaxDifference(results[i], want.data()) < tolerance);
  }
}

}  // namespace

void CheckPooled(const EngineDriverOptions& options, const json& goldens) {
  const bool is_f32 = options.dtype == DType::kF32;
  if (goldens["task"] == "embed") {
    CheckEmbeddings(options, goldens, is_f32);
  } else {
    CheckScores(options, goldens, is_f32);
  }
}

}  // namespace tandem
