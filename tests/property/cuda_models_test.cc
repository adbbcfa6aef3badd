// Whole models with heads that FlashInfer's kernels are made for, over the cuda backend on an
// emulated device: made-up weights, steps of prompts' chunks and single tokens mixed, graphs and
// steps in flight, against the reference backend. All tokens are given (each request may draw one
// only), so that every position's logprobs can be compared.

#include <algorithm>
#include <cmath>

#include "common/random.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr float kTolerance = 0.2f;  // of a logprob, in bf16; 0.11 is seen
constexpr int kNumRequests = 5;
constexpr int32_t kVocab = 128;

struct Family {
  const char* name;
  const char* fields;  // of config.json
};
const Family kFamilies[] = {
    {"llama, heads of 64", R"("architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "hidden_act": "silu",
      "tie_word_embeddings": false)"},
    {"qwen3, heads of 128", R"("architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 128, "hidden_act": "silu",
      "tie_word_embeddings": true)"},
    {"gemma2, heads of 256, soft caps and a window in every other layer",
     R"("architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
      "attn_logit_softcapping": 8.0, "final_logit_softcapping": 12.0,
      "query_pre_attn_scalar": 256, "sliding_window": 12, "tie_word_embeddings": true)"},
    {"mistral, a window, more heads per KV head than the decode kernel takes",
     R"("architectures": ["MistralForCausalLM"], "model_type": "mistral",
      "num_attention_heads": 7, "num_key_value_heads": 1, "head_dim": 64, "hidden_act": "silu",
      "sliding_window": 10, "tie_word_embeddings": false)"},
};

std::string ConfigOf(const Family& family) {
  return std::string("{") + family.fields +
         R"(, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "vocab_size": 128, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0, "torch_dtype": "bfloat16"})";
}

// Numbers by name and place, large enough that attention matters for the logits.
class MadeUpWeights final : public Weights {
 public:
  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    const bool is_matrix = rows > 0;
    const int64_t count = std::max<int64_t>(rows, 1) * columns;
    const float width = is_matrix ? 6 / std::sqrt(static_cast<float>(columns)) : 0.4f;
    const float middle = is_matrix ? 0 : 0.8f;
    uint64_t seed = 1;
    for (const char c : name) seed = MixBits(seed ^ static_cast<uint64_t>(c));
    std::vector<std::byte> memory(static_cast<size_t>(count) * sizeof(Bf16));
    auto* numbers = reinterpret_cast<Bf16*>(memory.data());
    for (int64_t i = 0; i < count; ++i) {
      const double uniform = UniformAt(seed, static_cast<uint64_t>(i)) - 0.5;
      numbers[i] = ToBf16(middle + width * static_cast<float>(uniform));
    }
    const Tensor view = is_matrix ? Tensor(nullptr, DType::kBf16, {rows, columns})
                                  : Tensor(nullptr, DType::kBf16, {columns});
    return WeightTensor(view, std::move(memory));
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t, int64_t, int64_t rows,
                                      int64_t columns) override {
    return Get(name, rows, columns);
  }
  bool Has(std::string_view) const override { return false; }
};

std::vector<Transcript> Run(const std::string& dir, bool is_cuda, bool has_graphs) {
  MadeUpWeights weights;
  EngineDriverOptions options;
  options.model_dir = dir;
  options.weights = &weights;
  options.reference_backend = true;
  options.max_num_batched_tokens = 24;
  options.block_size = 16;
  options.max_num_seqs = 4;
  options.max_model_len = 96;
  if (is_cuda) {
    options.make_backend = [] {
      return MakeEmulatedCudaBackend({.dtype = DType::kBf16,
                                      .num_threads = 1,
                                      .attention = AttentionBackend::kFlashInfer})
          .value();
    };
    if (has_graphs) options.graph_sizes = {1, 2, 4};
    options.async_scheduling = true;
  }
  EngineDriver engine(options);
  const int lengths[kNumRequests] = {3, 41, 1, 17, 30};
  for (int i = 0; i < kNumRequests; ++i) {
    std::vector<TokenId> prompt;
    for (int t = 0; t < lengths[i]; ++t) prompt.push_back((5 + 13 * t * t + 29 * i) % kVocab);
    wire::SamplingParams params = GreedyParams(6 + 2 * i);
    params.allowed_token_ids = {static_cast<TokenId>(11 + 7 * i)};
    params.logprob_token_ids = {1, 20, 77, 126};
    params.logprobs = 4;
    if (i % 2 == 1) params.prompt_logprobs = 0;
    engine.Add(std::to_string(i), std::move(prompt), params);
  }
  engine.RunAll();
  CHECK((engine.runner().num_replays() > 5) == (is_cuda && has_graphs));
  std::vector<Transcript> transcripts;
  for (int i = 0; i < kNumRequests; ++i)
    transcripts.push_back(engine.transcript(std::to_string(i)));
  return transcripts;
}

float MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  float most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    most = difference <= most ? most : difference;  // a NaN stays
  }
  return most;
}

}  // namespace

TEST_CASE("cuda models: FlashInfer's head sizes give the reference's result at every position") {
  if (!HasEmulatedFlashInfer()) {
    WARN("SKIPPED: this build has no FlashInfer");
    return;
  }
  for (const Family& family : kFamilies) {
    CAPTURE(family.name);
    const TempFolder folder;
    folder.Write("config.json", ConfigOf(family));
    const std::vector<Transcript> expected = Run(folder.path(), false, false);
    for (const bool has_graphs : {false, true}) {
      CAPTURE(has_graphs);
      const std::vector<Transcript> got = Run(folder.path(), true, has_graphs);
      float spread = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        REQUIRE(got[i].error.empty());
        REQUIRE(got[i].rows.size() == 6 + 2 * i);
        REQUIRE(got[i].token_ids == expected[i].token_ids);
        for (size_t t = 0; t < got[i].rows.size(); ++t) {
          CAPTURE(t);
          REQUIRE(got[i].rows[t].token_ids == expected[i].rows[t].token_ids);
          CHECK(MaxDifference(got[i].rows[t].logprobs, expected[i].rows[t].logprobs) < kTolerance);
          spread =
              std::max(spread, MaxDifference(got[i].rows[t].logprobs, got[i].rows[0].logprobs));
        }
        CHECK(MaxDifference(got[i].prompt_logprobs.logprobs, expected[i].prompt_logprobs.logprobs) <
              kTolerance);
      }
      CHECK(spread > 5 * kTolerance);  // else nothing has been compared
    }
  }
}

}  // namespace tandem
