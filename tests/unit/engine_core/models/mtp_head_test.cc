#include "engine_core/models/mtp_head.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "engine_core/models/registry.h"
#include "engine_core/weights/dummy_weights.h"
#include "tests/support/kernels/one_request.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

constexpr int32_t kBlockSize = 64;
constexpr int64_t kNumTokens = 9;
constexpr ModelLimits kLimits = {.max_tokens = 16, .max_logits_rows = 16, .max_positions = 64};

ModelConfig ConfigOf(const std::string& model) {
  return ReadModelConfig(TANDEM_GOLDEN_DIR "/models/" + model).value();
}

// Numbers that follow from a tensor's name, under other names.
class RenamedWeights final : public Weights {
 public:
  // {what a name begins with, in its place}
  using Names = std::vector<std::pair<std::string, std::string>>;
  explicit RenamedWeights(Names names) : names_(std::move(names)) {}

  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    return numbers_->Get(Renamed(name), rows, columns);
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                      int64_t rows, int64_t columns) override {
    return numbers_->GetFromStack(Renamed(name), index, count, rows, columns);
  }
  bool Has(std::string_view name) const override {
    return has_layer_ && (name.ends_with(".eh_proj.weight") || name == "mtp.fc.weight");
  }
  void DropLayer() { has_layer_ = false; }

 private:
  std::string Renamed(std::string_view name) const {
    for (const auto& [from, to] : names_) {
      if (name.starts_with(from)) return to + std::string(name.substr(from.size()));
    }
    return std::string(name);
  }

  const std::unique_ptr<Weights> numbers_ = MakeDummyWeights(3);
  Names names_;
  bool has_layer_ = true;
};

// A cache and a plan for one request of a model of this shape.
class Cache {
 public:
  Cache(Backend* backend, const ModelConfig& config) {
    const AttentionShape shape = HeadsOf(config).attention_shape();
    KvCacheSpec spec = {.num_layers = static_cast<int>(config.num_layers),
                        .num_kv_heads = shape.num_kv_heads,
                        .head_dim = shape.head_dim,
                        .block_size = kBlockSize,
                        .num_blocks = 2,
                        .is_latent = config.latent.kv_rank > 0};
    if (config.recurrent.num_layers() > 0) {
      spec.state_size = config.recurrent.state_size();
      for (int64_t i = 0; i < config.num_layers; ++i) {
        spec.layers.push_back(
            {.has_kv = config.recurrent.HasKv(i), .has_state = config.recurrent.HasState(i)});
      }
    }
    kv_ = backend->AllocateKvCache(spec).value();
    plan_ = backend->MakeAttentionPlan(shape, kLimits.max_tokens, 1).value();
  }
  const AttentionPlan* Fill(const OneRequest& request) {
    plan_->Fill(request.batch());
    return plan_.get();
  }
  const KvCache* kv() const { return kv_.get(); }

 private:
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<AttentionPlan> plan_;
};

struct Matrix {
  Matrix(int64_t num_rows, int64_t num_columns)
      : numbers(static_cast<size_t>(num_rows * num_columns)),
        view(numbers.data(), DType::kF32, {num_rows, num_columns}) {}
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  std::vector<float> numbers;
  Tensor view;
};

void Read(Weights* weights, const std::string& name, const Tensor& out) {
  const bool is_vector = out.rows() == 1;
  const WeightTensor tensor = weights->Get(name, is_vector ? 0 : out.rows(), out.shape[1]).value();
  ConvertTensor(is_vector ? Tensor(out.data, DType::kF32, {out.shape[1]}) : out, tensor.view());
}

// Where the head's tensors are.
struct Names {
  std::string layer, joined, embedding_norm, state_norm, output_norm;
  bool is_apart = false;
};

Names NamesOf(const ModelConfig& config) {
  if (config.architecture == "Qwen3_5ForCausalLM") {
    return {"mtp.layers.0",           "mtp.fc",   "mtp.pre_fc_norm_embedding",
            "mtp.pre_fc_norm_hidden", "mtp.norm", true};
  }
  const std::string layer = "model.layers." + std::to_string(config.num_layers);
  return {layer, layer + ".eh_proj", layer + ".enorm", layer + ".hnorm",
          layer + ".shared_head.norm"};
}

// Weights of a norm; Qwen3.5 stores them less 1.
void ReadNorm(Weights* weights, const std::string& name, bool is_less_1, Matrix* out) {
  Read(weights, name + ".weight", out->view);
  for (float& number : out->numbers) number += is_less_1 ? 1 : 0;
}

// RMS norm of a row, in float64.
std::vector<double> Normed(const float* row, const float* weight, int64_t size, double epsilon) {
  double squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += double{row[i]} * row[i];
  const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + epsilon);
  std::vector<double> out;
  for (int64_t i = 0; i < size; ++i) out.push_back(row[i] * scale * weight[i]);
  return out;
}

// What goes into the layer, by its formula: joined [norm embedding, norm state].
void Join(Weights* weights, const ModelConfig& config, const std::vector<int32_t>& ids,
          const Tensor& states, const Tensor& out) {
  const int64_t hidden = config.hidden_size;
  const Names names = NamesOf(config);
  Matrix table(config.vocab_size, hidden), joined(hidden, 2 * hidden);
  Matrix embedding_norm(1, hidden), state_norm(1, hidden);
  Read(weights, "model.embed_tokens.weight", table.view);
  Read(weights, names.joined + ".weight", joined.view);
  ReadNorm(weights, names.embedding_norm, names.is_apart, &embedding_norm);
  ReadNorm(weights, names.state_norm, names.is_apart, &state_norm);
  const std::vector<float> zeros(static_cast<size_t>(hidden));
  for (int64_t t = 0; t < out.rows(); ++t) {
    const float* embedding = t == 0 && !names.is_apart
                                 ? zeros.data()
                                 : table.view.Row<float>(ids[static_cast<size_t>(t)]);
    std::vector<double> x =
        Normed(embedding, embedding_norm.numbers.data(), hidden, config.rms_norm_eps);
    const std::vector<double> state =
        Normed(states.Row<float>(t), state_norm.numbers.data(), hidden, config.rms_norm_eps);
    x.insert(x.end(), state.begin(), state.end());
    for (int64_t i = 0; i < hidden; ++i) {
      const float* row = joined.view.Row<float>(i);
      out.Row<float>(t)[i] = static_cast<float>(std::inner_product(x.begin(), x.end(), row, 0.0));
    }
  }
}

void CheckNear(const Tensor& got, const Tensor& expected) {
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < got.NumElements(); ++i) {
    const double value = expected.Data<float>()[i];
    REQUIRE(std::isfinite(got.Data<float>()[i]));
    worst = std::max(worst, std::abs(got.Data<float>()[i] - value));
    largest = std::max(largest, std::abs(value));
  }
  CHECK(largest > 0.01);
  CHECK(worst < 1e-4 * std::max(1.0, largest));
}

// The layer as a model of its own, whose embeddings are what goes into the layer.
TEST_CASE("an MTP head is its layer over the joined embeddings and states") {
  const std::string name = GENERATE("llama_plain", "qwen3_moe", "deepseek_v2", "qwen3_5_text");
  CAPTURE(name);
  const ModelConfig config = ConfigOf(name);
  const int64_t hidden = config.hidden_size, vocab_size = config.vocab_size;
  const Names names = NamesOf(config);
  const auto backend = MakeReferenceBackend();
  RenamedWeights weights({});
  const auto target = LoadModel({config, kLimits, weights, *backend}).value();

  // The states of the tokens 0 .. n - 1; the head has the tokens 1 .. n.
  std::vector<int32_t> ids(kNumTokens + 1);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(3 + 7 * i);
  const OneRequest request(kNumTokens, kBlockSize, {1});
  Cache target_cache(backend.get(), config);
  target->Forward({.token_ids = Tensor(ids.data(), DType::kI32, {kNumTokens}),
                   .plan = target_cache.Fill(request),
                   .kv_cache = target_cache.kv()});
  Matrix states(kNumTokens, hidden);
  target->NormStates(states.view);

  const ModelConfig alone = MtpConfig(config).value();
  const auto head =
      MtpHead::Load({alone, kLimits, weights, *backend}, config.num_layers, *target).value();
  CHECK(head->state_layers().empty());
  const Tensor rows = request.batch().positions;
  std::vector<int32_t> next(ids.begin() + 1, ids.end());
  const Tensor next_ids(next.data(), DType::kI32, {kNumTokens});
  Cache head_cache(backend.get(), alone);
  head->Forward({.token_ids = next_ids,
                 .states = states.view,
                 .state_rows = rows,
                 .plan = head_cache.Fill(request),
                 .kv_cache = head_cache.kv()});
  Matrix logits(kNumTokens, vocab_size);
  head->Logits(logits.view, rows);

  RenamedWeights moved(
      {{"model.layers.0.", names.layer + "."}, {"model.norm.", names.output_norm + "."}});
  const auto model = LoadModel({alone, kLimits, moved, *backend}).value();
  Cache model_cache(backend.get(), alone);
  Matrix joined(kNumTokens, hidden), own_states(kNumTokens, hidden);
  Matrix expected(kNumTokens, vocab_size);
  const auto run = [&](const Tensor& states_of) {
    Join(&weights, config, next, states_of, joined.view);
    const EmbeddedRows embedded[] = {{.first = 0, .values = joined.view}};
    const StateTap tap[] = {{.num_layers = 1, .out = own_states.view}};
    model->Forward({.token_ids = next_ids,
                    .embedded = embedded,
                    .plan = model_cache.Fill(request),
                    .kv_cache = model_cache.kv(),
                    .taps = tap});
    model->Logits(expected.view, rows);
  };
  run(states.view);
  CheckNear(logits.view, expected.view);

  // On its own states, which are those before its last norm (of Qwen3.5, after it), in another
  // order.
  Matrix output_norm(1, hidden);
  ReadNorm(&weights, names.output_norm, names.is_apart, &output_norm);
  std::vector<int32_t> reversed(kNumTokens);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  Matrix taken(kNumTokens, hidden);
  for (int64_t t = 0; t < kNumTokens; ++t) {
    const float* own = own_states.view.Row<float>(kNumTokens - 1 - t);
    std::copy_n(own, hidden, taken.view.Row<float>(t));
    if (!names.is_apart) continue;
    std::ranges::copy(Normed(own, output_norm.numbers.data(), hidden, config.rms_norm_eps),
                      taken.view.Row<float>(t));
  }
  head->Forward({.token_ids = next_ids,
                 .states = Tensor(),
                 .state_rows = Tensor(reversed.data(), DType::kI32, {kNumTokens}),
                 .plan = head_cache.Fill(request),
                 .kv_cache = head_cache.kv()});
  head->Logits(logits.view, rows);
  run(taken.view);
  CheckNear(logits.view, expected.view);
}

TEST_CASE("an MTP head: a checkpoint without the layer, and models whose layers need others") {
  const ModelConfig config = ConfigOf("llama_plain");
  const auto backend = MakeReferenceBackend();
  RenamedWeights weights({});
  const auto target = LoadModel({config, kLimits, weights, *backend}).value();
  weights.DropLayer();
  const ModelConfig alone = MtpConfig(config).value();
  const auto head = MtpHead::Load({alone, kLimits, weights, *backend}, config.num_layers, *target);
  CHECK_THAT(head.status().message(), Contains("model.layers.3.eh_proj.weight"));
  CHECK_THAT(MtpConfig(ConfigOf("lfm2")).status().message(), Contains("mtp is not built for Lfm2"));
  ModelConfig sparse = config;
  sparse.index.dim = 16;
  CHECK_THAT(MtpConfig(sparse).status().message(), Contains("mtp is not built for"));
}

}  // namespace
}  // namespace tandem
