#include "engine_core/models/registry.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/random.h"
#include "common/read_file.h"
#include "engine_core/models/rope_table.h"
#include "engine_core/weights/dummy_weights.h"
#include "tests/support/kernels/one_request.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

ModelConfig ConfigOf(const std::string& model) {
  const auto config = ReadModelConfig(TANDEM_GOLDEN_DIR "/models/" + model);
  REQUIRE(config.ok());
  return *config;
}

Status LoadError(const ModelConfig& config, const std::string& weights_of) {
  const auto weights = OpenSafetensors(TANDEM_GOLDEN_DIR "/models/" + weights_of);
  REQUIRE(weights.ok());
  const auto backend = MakeReferenceBackend();
  const ModelLimits limits = {.max_tokens = 8, .max_logits_rows = 4, .max_positions = 64};
  const auto model = LoadModel({config, limits, **weights, *backend});
  REQUIRE_FALSE(model.ok());
  return model.status();
}

TEST_CASE("models: an unknown architecture lists the known ones") {
  ModelConfig config = ConfigOf("llama_tied");
  config.architecture = "PerceptronForCausalLM";
  CHECK_THAT(LoadError(config, "llama_tied").message(), Contains("PerceptronForCausalLM") &&
                                                            Contains("LlamaForCausalLM, ") &&
                                                            Contains(", Qwen3ForCausalLM"));
}

TEST_CASE("models: an error names a missing tensor and its file") {
  ModelConfig config = ConfigOf("llama_tied");
  config.tie_word_embeddings = false;
  CHECK_THAT(LoadError(config, "llama_tied").message(),
             Contains("lm_head.weight") && Contains("llama_tied"));
  config = ConfigOf("llama_tied");
  config.num_layers = 9;
  CHECK_THAT(LoadError(config, "llama_tied").message(), Contains("model.layers.2."));
}

TEST_CASE("models: an error names a tensor that contradicts the config, with both shapes") {
  ModelConfig config = ConfigOf("llama_tied");
  config.intermediate_size = 128;
  CHECK_THAT(LoadError(config, "llama_tied").message(),
             Contains("gate_proj.weight") && Contains("[96, 64]") && Contains("[128, 64]"));
}

TEST_CASE("models: an unknown activation is refused") {
  ModelConfig config = ConfigOf("llama_tied");
  config.hidden_act = "gelu";
  CHECK_THAT(LoadError(config, "llama_tied").message(), Contains("gelu") && Contains("silu"));
}

// The logits after `ids` in one step, on the reference backend.
std::vector<float> LastLogits(const ModelConfig& config, Weights& weights, std::vector<int32_t> ids,
                              int num_stages = 1) {
  const auto count = static_cast<int64_t>(ids.size());
  const auto backend = MakeReferenceBackend();
  const ModelLimits limits = {.max_tokens = count, .max_logits_rows = 4, .max_positions = 64};
  const auto model = LoadModel({config, limits, weights, *backend}, num_stages);
  REQUIRE(model.ok());
  const AttentionShape shape = HeadsOf(config).attention_shape();
  const auto cache = backend->AllocateKvCache({.num_layers = static_cast<int>(config.num_layers),
                                               .num_kv_heads = shape.num_kv_heads,
                                               .head_dim = shape.head_dim,
                                               .block_size = 64,
                                               .num_blocks = 2});
  REQUIRE(cache.ok());
  const auto plan = backend->MakeAttentionPlan(shape, count, 1).value();
  const OneRequest request(static_cast<int32_t>(count), 64, {1});
  plan->Fill(request.batch());
  (*model)->Forward({.token_ids = Tensor(ids.data(), DType::kI32, {count}),
                     .plan = plan.get(),
                     .kv_cache = cache->get()});
  std::vector<float> logits(static_cast<size_t>(config.vocab_size));
  (*model)->Logits(Tensor(logits.data(), DType::kF32, {1, config.vocab_size}),
                   request.batch().positions.Rows(count - 1, 1));
  return logits;
}

TEST_CASE("models: a model in several stages gives the bits of one stage") {
  const std::string model =
      GENERATE("llama_plain", "llama_tied", "gemma3_text", "gpt2", "qwen3_moe");
  CAPTURE(model);
  const ModelConfig config = ConfigOf(model);
  const auto weights = OpenSafetensors(TANDEM_GOLDEN_DIR "/models/" + model);
  REQUIRE(weights.ok());
  const std::vector<int32_t> ids = {5, 6, 7, 8, 300};
  const std::vector<float> whole = LastLogits(config, **weights, ids);
  for (int num_stages = 2; num_stages <= config.num_layers; ++num_stages) {
    CHECK(LastLogits(config, **weights, ids, num_stages) == whole);
  }
}

// Weights whose experts are in stacks [E, H, 2 I] and [E, I, H], as Qwen3-VL-MoE's checkpoints have
// them, of weights that have each one's matrices apart.
class TurnedStacks final : public Weights {
 public:
  explicit TurnedStacks(Weights* apart) : apart_(apart) {}
  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    if (name.find(".experts.") != std::string_view::npos) return NotFoundError(std::string(name));
    return apart_->Get(name, rows, columns);
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t, int64_t rows,
                                      int64_t columns) override {
    const std::string stack(name.substr(0, name.rfind('.') + 1)), e = std::to_string(index) + ".";
    const bool is_down = name.ends_with("down_proj");
    const std::vector<std::string> names = is_down
                                               ? std::vector<std::string>{"down_proj"}
                                               : std::vector<std::string>{"gate_proj", "up_proj"};
    const int64_t own = columns / static_cast<int64_t>(names.size());
    const auto size = static_cast<size_t>(rows * columns) * sizeof(float);
    std::vector<std::byte> memory(size);
    auto* numbers = reinterpret_cast<float*>(memory.data());
    for (size_t part = 0; part < names.size(); ++part) {
      ASSIGN_OR_RETURN(const WeightTensor matrix,
                       apart_->Get(stack + e + names[part] + ".weight", own, rows));
      std::vector<float> row(static_cast<size_t>(rows));
      for (int64_t j = 0; j < own; ++j) {
        ConvertTensor(Tensor(row.data(), DType::kF32, {1, rows}), matrix.view().Rows(j, 1));
        for (int64_t i = 0; i < rows; ++i) {
          numbers[i * columns + static_cast<int64_t>(part) * own + j] = row[static_cast<size_t>(i)];
        }
      }
    }
    return WeightTensor(Tensor(nullptr, DType::kF32, {rows, columns}), std::move(memory));
  }
  bool Has(std::string_view name) const override {
    if (name.find(".experts.") != std::string_view::npos) return name.ends_with(".gate_up_proj");
    return apart_->Has(name);
  }

 private:
  Weights* apart_;
};

TEST_CASE("models: Qwen3-VL-MoE's experts are those of Qwen3-MoE, stored the other way round") {
  ModelConfig config = ConfigOf("qwen3_moe");
  const auto weights = OpenSafetensors(TANDEM_GOLDEN_DIR "/models/qwen3_moe");
  REQUIRE(weights.ok());
  const std::vector<int32_t> ids = {5, 6, 7, 8, 300};
  const std::vector<float> expected = LastLogits(config, **weights, ids);
  config.architecture = "Qwen3VLMoeForConditionalGeneration";
  TurnedStacks stacks(weights->get());
  CHECK(LastLogits(config, stacks, ids) == expected);
  // Or one by one, as quantized ones are.
  CHECK(LastLogits(config, **weights, ids) == expected);
}

TEST_CASE("models: OLMo 3's layers with a window turn as the config says of them") {
  const auto text = ReadFile(TANDEM_GOLDEN_DIR "/models/olmo2/config.json", 1 << 20);
  REQUIRE(text.ok());
  nlohmann::json json = nlohmann::json::parse(*text);
  const auto weights = OpenSafetensors(TANDEM_GOLDEN_DIR "/models/olmo2");
  REQUIRE(weights.ok());
  const std::vector<int32_t> ids = {5, 6, 7, 8, 300};
  const auto logits = [&] {
    const auto config = ParseModelConfig(json.dump(), "");
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    return LastLogits(*config, **weights, ids);
  };
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"}) json.erase(key);
  json["rope_theta"] = 777;
  const std::vector<float> expected = logits();
  // The same layers, in windows that nothing leaves.
  json["architectures"] = {"Olmo3ForCausalLM"};
  json["sliding_window"] = 64;
  json["layer_types"] =
      std::vector<std::string>(json["num_hidden_layers"].get<size_t>(), "sliding_attention");
  CHECK(logits() == expected);
  json["rope_theta"] = 10000;
  CHECK(logits() != expected);
  json["rope_parameters"] = {{"full_attention", {{"rope_theta", 10000}}},
                             {"sliding_attention", {{"rope_theta", 777}}}};
  CHECK(logits() == expected);
}

TEST_CASE("models: EXAONE 4 turns nothing where the config has a window that is no layer's") {
  nlohmann::json json = nlohmann::json::parse(
      R"({"architectures": ["Exaone4ForCausalLM"], "vocab_size": 64, "hidden_size": 32,
          "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
          "layer_types": ["full_attention", "full_attention"], "sliding_window": null})");
  // So large that a position shows.
  const auto weights =
      MakeWeights(3, [](uint64_t key, std::string_view, bool is_vector, std::span<Bf16> values) {
        for (size_t i = 0; i < values.size(); ++i) {
          const float level = static_cast<float>(MixBits(key + i) & 0xff) / 256 - 0.5f;
          values[i] = ToBf16(is_vector ? 1 + level / 4 : level);
        }
      });
  const std::vector<int32_t> ids = {5, 6, 7, 8, 30};
  const auto logits = [&] {
    const auto config = ParseModelConfig(json.dump(), "");
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    return LastLogits(*config, *weights, ids);
  };
  const std::vector<float> turned = logits();
  json["sliding_window"] = 64;
  const std::vector<float> whole = logits();
  CHECK(whole != turned);
  // Every position as if it were the first.
  json["sliding_window"] = nullptr;
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 1e30}};
  CHECK(logits() == whole);
}

// Made up weights but for decays, which are as Kimi Linear's checkpoints have them.
class FourDimensionalDecays final : public Weights {
 public:
  FourDimensionalDecays(std::string dtype, int64_t element_bytes)
      : made_(MakeDummyWeights(3)), dtype_(std::move(dtype)), element_bytes_(element_bytes) {}
  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    if (name.ends_with(".A_log")) return InvalidArgumentError("has shape [1, 1, 4, 1]");
    return made_->Get(name, rows, columns);
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                      int64_t rows, int64_t columns) override {
    return made_->GetFromStack(name, index, count, rows, columns);
  }
  StatusOr<StoredTensor> GetStored(std::string_view name) override {
    if (!name.ends_with(".A_log")) return made_->GetStored(name);
    std::vector<std::byte> zeros(static_cast<size_t>(4 * element_bytes_));
    return StoredTensor(dtype_, {1, 1, 4, 1}, std::move(zeros));
  }
  bool Has(std::string_view name) const override { return made_->Has(name); }

 private:
  const std::unique_ptr<Weights> made_;
  const std::string dtype_;
  const int64_t element_bytes_;
};

TEST_CASE("models: decays of four dimensions are read in any type of numbers") {
  const auto config = ParseModelConfig(
      R"({"architectures": ["KimiLinearForCausalLM"], "vocab_size": 64, "hidden_size": 32,
          "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
          "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
          "mla_use_nope": true, "linear_attn_config": {"num_heads": 4, "head_dim": 8,
          "kda_layers": [1], "full_attn_layers": [2], "short_conv_kernel_size": 4}})",
      "");
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  const auto backend = MakeReferenceBackend();
  const ModelLimits limits = {.max_tokens = 8, .max_logits_rows = 4, .max_positions = 64};
  for (const auto& [dtype, bytes] :
       {std::pair{"F32", 4}, {"F64", 8}, {"BF16", 2}, {"F16", 2}, {"I32", 4}}) {
    CAPTURE(dtype);
    FourDimensionalDecays weights(dtype, bytes);
    const Status status = LoadModel({*config, limits, weights, *backend}).status();
    INFO(status.ToString());
    CHECK(status.ok() == (std::string_view(dtype) != "I32"));
    if (!status.ok()) CHECK_THAT(status.message(), Contains("has dtype I32"));
  }
}

TEST_CASE("models: dummy weights give any shape finite logits") {
  const std::string model = GENERATE("qwen3", "mixtral", "qwen3_moe");
  CAPTURE(model);
  ModelConfig config = ConfigOf(model);
  config.num_layers = 12;
  config.hidden_size = 192;
  const auto weights = MakeDummyWeights(3);
  const std::vector<float> logits = LastLogits(config, *weights, {1, 2, 3});
  float low = logits[0], high = logits[0];
  for (const float x : logits) {
    REQUIRE(std::isfinite(x));
    low = std::min(low, x);
    high = std::max(high, x);
  }
  CHECK(low < high);
}

// A folder's experts as transformers 5 stores them: one tensor for all gates and ups of a layer,
// one for all downs.
class StackedExperts final : public Weights {
 public:
  StackedExperts(Weights* real, std::string block, std::vector<std::string> names)
      : real_(real), block_(std::move(block)), names_(std::move(names)) {}

  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    return real_->Get(Renamed(name), rows, columns);
  }
  bool Has(std::string_view name) const override {
    return name.ends_with(".mlp.experts.gate_up_proj") && real_->Has(Expert(name, 0, names_[0]));
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t /*count*/,
                                      int64_t rows, int64_t columns) override {
    if (name.ends_with(".down_proj"))
      return real_->Get(Expert(name, index, names_[2]), rows, columns);
    std::vector<std::byte> memory;
    for (size_t i = 0; i < 2; ++i) {
      const auto half = real_->Get(Expert(name, index, names_[i]), rows / 2, columns);
      REQUIRE(half.ok());
      const auto* begin = static_cast<const std::byte*>(half->view().data);
      memory.insert(memory.end(), begin, begin + half->view().NumBytes());
    }
    return WeightTensor(Tensor(nullptr, DType::kBf16, {rows, columns}), std::move(memory));
  }

 private:
  // "model.layers.1.mlp.experts.gate_up_proj" → "model.layers.1.<block>.experts.<index>.<part>"
  std::string Expert(std::string_view stack, int64_t index, const std::string& part) const {
    const std::string prefix = Renamed(stack.substr(0, stack.rfind('.')));
    return prefix + "." + std::to_string(index) + "." + part + ".weight";
  }
  std::string Renamed(std::string_view name) const {
    std::string text(name);
    const size_t at = text.find(".mlp.");
    return at == std::string::npos ? text : text.replace(at, 5, "." + block_ + ".");
  }

  Weights* real_;
  std::string block_;
  std::vector<std::string> names_;
};

TEST_CASE("models: experts in one tensor give the same bits as experts in many") {
  struct Row {
    std::string model, block;
    std::vector<std::string> names;
  };
  for (const Row& row : {Row{"mixtral", "block_sparse_moe", {"w1", "w3", "w2"}},
                         Row{"qwen3_moe", "mlp", {"gate_proj", "up_proj", "down_proj"}}}) {
    CAPTURE(row.model);
    const ModelConfig config = ConfigOf(row.model);
    const auto weights = OpenSafetensors(TANDEM_GOLDEN_DIR "/models/" + row.model);
    REQUIRE(weights.ok());
    StackedExperts stacked(weights->get(), row.block, row.names);
    const std::vector<int32_t> ids = {5, 6, 7, 8, 300};
    CHECK(LastLogits(config, stacked, ids) == LastLogits(config, **weights, ids));
  }
}

TEST_CASE("models: the config decides which layers are mixtures, and of how many experts") {
  ModelConfig config = ConfigOf("qwen3_moe");
  config.mixture_layers = {true, true};
  CHECK_THAT(LoadError(config, "qwen3_moe").message(), Contains("model.layers.0.mlp.gate.weight"));
  config.mixture_layers = {false, false};
  CHECK_THAT(LoadError(config, "qwen3_moe").message(), Contains("model.layers.1.mlp.gate_proj"));
  config = ConfigOf("qwen3_moe");
  config.num_experts_per_tok = 9;
  CHECK_THAT(LoadError(config, "qwen3_moe").message(),
             Contains("num_experts_per_tok 9") && Contains("which is 8"));
  config = ConfigOf("qwen3_moe");
  config.num_experts = 7;
  CHECK_THAT(LoadError(config, "qwen3_moe").message(), Contains("[8, 64]") && Contains("[7, 64]"));
  config = ConfigOf("mixtral");
  config.hidden_act = "gelu_pytorch_tanh";
  CHECK_THAT(LoadError(config, "mixtral").message(), Contains("must be silu"));
}

TEST_CASE("models: the error of an unknown architecture lists the known ones") {
  ModelConfig config = ConfigOf("qwen3_moe");
  config.architecture = "PerceptronForCausalLM";
  CHECK_THAT(LoadError(config, "qwen3_moe").message(),
             Contains("PerceptronForCausalLM") && Contains("Qwen3MoeForCausalLM"));
}

// The oldest checkpoints of GPT-2 have no "transformer." before their names.
class Unprefixed final : public Weights {
 public:
  explicit Unprefixed(Weights* real) : real_(real) {}
  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    return real_->Get("transformer." + std::string(name), rows, columns);
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                      int64_t rows, int64_t columns) override {
    return real_->GetFromStack(name, index, count, rows, columns);
  }
  bool Has(std::string_view name) const override {
    return real_->Has("transformer." + std::string(name));
  }

 private:
  Weights* real_;
};

TEST_CASE("models: GPT-2 with and without a prefix before its names") {
  const ModelConfig config = ConfigOf("gpt2");
  const auto weights = OpenSafetensors(TANDEM_GOLDEN_DIR "/models/gpt2");
  REQUIRE(weights.ok());
  Unprefixed unprefixed(weights->get());
  CHECK(LastLogits(config, unprefixed, {5, 6, 7}) == LastLogits(config, **weights, {5, 6, 7}));
}

TEST_CASE("models: dynamic rope is refused beyond the trained length") {
  ModelConfig config = ConfigOf("llama_tied");
  config.rope.type = RopeType::kDynamic;
  config.max_position_embeddings = 63;
  CHECK_THAT(LoadError(config, "llama_tied").message(),
             Contains("dynamic") && Contains("63") && Contains("--max-model-len"));
}

RopeTable TableOf(const RopeConfig& rope, int64_t head_dim, int64_t max_positions) {
  return MakeRopeTable(rope, head_dim, max_positions,
                       [](int64_t n, RangeFunction fill) { fill(0, n); });
}

TEST_CASE("rope table: longrope uses its long list when requests may exceed the original context") {
  RopeConfig rope;
  rope.type = RopeType::kLongRope;
  rope.original_max_position_embeddings = 64;
  rope.short_factor = {1, 2};
  rope.long_factor = {4, 8};
  rope.attention_factor = 1.5;
  const auto plain = RopeFrequencies(RopeConfig(), 4, 64);
  const auto fits = RopeFrequencies(rope, 4, 64), outgrows = RopeFrequencies(rope, 4, 65);
  CHECK(fits[0] == plain[0]);
  CHECK(fits[1] == Approx(plain[1] / 2));
  CHECK(outgrows[0] == Approx(plain[0] / 4));
  CHECK(outgrows[1] == Approx(plain[1] / 8));
  CHECK(TableOf(rope, 4, 65).cos[0] == 1.5f);
  rope.long_attention_factor = 1.25;
  CHECK(TableOf(rope, 4, 65).cos[0] == 1.25f);
  CHECK(TableOf(rope, 4, 64).cos[0] == 1.5f);
}

TEST_CASE("rope table: proportional turns the first part of the pairs alone") {
  RopeConfig rope;
  rope.type = RopeType::kProportional;
  rope.turning_part = 0.25;
  const std::vector<float> frequencies = RopeFrequencies(rope, 16, 100);
  REQUIRE(frequencies.size() == 8);
  CHECK(frequencies[0] == 1);
  CHECK(frequencies[1] == Approx(std::pow(10000.0, -2.0 / 16)));
  for (size_t i = 2; i < 8; ++i) CHECK(frequencies[i] == 0);
}

TEST_CASE("rope table: unscaled angles") {
  const RopeConfig rope;
  const RopeTable table = TableOf(rope, 4, 3);
  REQUIRE(table.cos.size() == 6);
  CHECK(table.cos[0] == 1.0f);
  CHECK(table.sin[0] == 0.0f);
  CHECK(table.cos[2 * 2] == Approx(std::cos(2.0)));       // position 2, pair 0: 2 rad
  CHECK(table.sin[2 * 2 + 1] == Approx(std::sin(0.02)));  // pair 1: 10000^(-1/2) per position
}

TEST_CASE("rope table: parts have the bits of the whole") {
  RopeConfig rope;
  rope.type = RopeType::kLinear;
  rope.factor = 3;
  const RopeTable whole = TableOf(rope, 6, 50);
  const RopeTable parts = MakeRopeTable(rope, 6, 50, [](int64_t n, RangeFunction fill) {
    fill(17, n);
    fill(0, 17);
  });
  CHECK(parts.cos == whole.cos);
  CHECK(parts.sin == whole.sin);
}

TEST_CASE("rope table: llama3 keeps short waves, divides long ones by the factor") {
  RopeConfig rope;
  rope.type = RopeType::kLlama3;
  rope.factor = 8;
  rope.original_max_position_embeddings = 64;
  const auto plain = RopeFrequencies(RopeConfig(), 16, 64), scaled = RopeFrequencies(rope, 16, 64);
  CHECK(scaled.front() == plain.front());
  CHECK(scaled.back() == Approx(plain.back() / 8));
  for (size_t i = 1; i < scaled.size(); ++i) CHECK(scaled[i] < scaled[i - 1]);
}

TEST_CASE("rope table: yarn keeps the first pairs, interpolates the last, scales cos and sin") {
  RopeConfig rope;
  rope.type = RopeType::kYarn;
  rope.factor = 4;
  rope.original_max_position_embeddings = 64;
  rope.attention_factor = 1.25;
  const auto plain = RopeFrequencies(RopeConfig(), 16, 64), scaled = RopeFrequencies(rope, 16, 64);
  CHECK(scaled.front() == plain.front());
  CHECK(scaled.back() == Approx(plain.back() / 4));
  CHECK(TableOf(rope, 16, 1).cos[0] == 1.25f);
}

}  // namespace
}  // namespace tandem
