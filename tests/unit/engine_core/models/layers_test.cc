#include "engine_core/models/layers.h"

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine_core/models/kv_scales.h"
#include "engine_core/models/registry.h"
#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int64_t kTokens = 3;
constexpr ModelLimits kLimits = {.max_tokens = 8, .max_logits_rows = 1, .max_positions = 64};

// The layer of a golden folder as one rank of some holds it.
struct Loaded {
  AttentionLayer attention;
  MlpLayer mlp;
  HeadShare heads;
  Slice inner;
};

class SharedLayer {
 public:
  explicit SharedLayer(const std::string& model)
      : folder_(TANDEM_GOLDEN_DIR "/models/" + model),
        config_(ReadModelConfig(folder_).value()),
        weights_(OpenSafetensors(folder_).value()),
        backend_(MakeReferenceBackend()) {}

  Loaded Load(RankShare share) {
    LoadContext context = {config_, kLimits, *weights_, *backend_};
    context.share = share;
    const LayerPlace place = {.idx = 1, .prefix = "model.layers.1"};
    return {.attention = LoadAttention(context, place).value(),
            .mlp = LoadGatedMlp(context, place).value(),
            .heads = context.heads(),
            .inner = share.Of(config_.intermediate_size)};
  }

  // layer(x) of the rows' own width.
  std::vector<float> Run(const LinearLayer& layer, const std::vector<float>& x,
                         LinearEpilogue epilogue = LinearEpilogue::kStore) {
    const OwnedTensor in = UploadAct(*backend_, x, {kTokens, layer.weight->k()});
    const int64_t n = layer.weight->is_gated() ? layer.weight->n() / 2 : layer.weight->n();
    const OwnedTensor out = Make(*backend_, DType::kF32, {kTokens, n});
    backend_->ops().Linear(out, in, *layer.weight, layer.bias, epilogue);
    return Floats(*backend_, out);
  }

  const ModelConfig& config() const { return config_; }

 private:
  std::string folder_;
  ModelConfig config_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Backend> backend_;
};

// Columns of rows [kTokens, ...].
std::vector<float> Columns(const std::vector<float>& rows, Slice slice) {
  const auto width = static_cast<int64_t>(rows.size()) / kTokens;
  std::vector<float> result;
  for (int64_t t = 0; t < kTokens; ++t) {
    const auto begin = rows.begin() + t * width + slice.begin;
    result.insert(result.end(), begin, begin + slice.count);
  }
  return result;
}

TEST_CASE("layers: the shares of the ranks make up the layer") {
  // With biases on q, k and v in the second.
  const std::string model = GENERATE("llama_plain", "llama_bias_headdim");
  CAPTURE(model);
  SharedLayer layer(model);
  Draw draw(7);
  const ModelConfig& config = layer.config();
  const Loaded whole = layer.Load({});
  const std::vector<float> x = draw.Normals(kTokens * config.hidden_size);
  const std::vector<float> attended = draw.Normals(kTokens * whole.heads.q_size());
  const std::vector<float> qkv = layer.Run(whole.attention.qkv, x);
  const std::vector<float> activated = layer.Run(whole.mlp.up, x, LinearEpilogue::kSiluAndMul);

  const std::vector<float> out = layer.Run(whole.attention.out, attended);
  const std::vector<float> down = layer.Run(whole.mlp.down, activated);
  constexpr int kRanks = 2;
  for (int rank = 0; rank < kRanks; ++rank) {
    const RankShare share = {.rank = rank, .size = kRanks};
    const Loaded part = layer.Load(share);
    const HeadShare& all = whole.heads;
    const HeadShare& mine = part.heads;
    REQUIRE(mine.q_size() == all.q_size() / kRanks);
    const std::vector<float> part_qkv = layer.Run(part.attention.qkv, x);
    CHECK(Columns(part_qkv, {0, mine.q_size()}) == Columns(qkv, mine.q_rows()));
    CHECK(Columns(part_qkv, {mine.q_size(), mine.kv_size()}) ==
          Columns(qkv, mine.kv_rows().Shifted(all.q_size())));
    CHECK(Columns(part_qkv, {mine.q_size() + mine.kv_size(), mine.kv_size()}) ==
          Columns(qkv, mine.kv_rows().Shifted(all.q_size() + all.kv_size())));
    CHECK(layer.Run(part.mlp.up, x, LinearEpilogue::kSiluAndMul) == Columns(activated, part.inner));
    // Of all that attention and activation computed, on every rank.
    const Slice hidden = share.Of(config.hidden_size);
    CHECK(layer.Run(part.attention.out, attended) == Columns(out, hidden));
    CHECK(layer.Run(part.mlp.down, activated) == Columns(down, hidden));
  }
}

using Numbers = std::map<std::string, std::vector<float>, std::less<>>;

// Tensors of one or more numbers.
class FewNumbers final : public Weights {
 public:
  explicit FewNumbers(Numbers tensors) : tensors_(std::move(tensors)) {}
  StatusOr<WeightTensor> Get(std::string_view, int64_t, int64_t) override {
    return NotFoundError("no matrices");
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view, int64_t, int64_t, int64_t,
                                      int64_t) override {
    return NotFoundError("no stacks");
  }
  StatusOr<StoredTensor> GetStored(std::string_view name) override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return NotFoundError(std::string(name));
    const auto* bytes = reinterpret_cast<const std::byte*>(found->second.data());
    return StoredTensor("F32", {static_cast<int64_t>(found->second.size())},
                        std::vector<std::byte>(bytes, bytes + found->second.size() * 4));
  }
  bool Has(std::string_view name) const override { return tensors_.contains(name); }

 private:
  Numbers tensors_;
};

TEST_CASE("layers: scales of a float8 cache, by the names that tools give them") {
  const auto backend = MakeReferenceBackend();
  const ModelConfig config;
  const auto scales_of = [&](const Numbers& numbers, KvFormat format) {
    FewNumbers weights(numbers);
    LoadContext context = {config, kLimits, weights, *backend};
    context.kv_format = format;
    return LoadKvScales(context, "l");
  };
  const Numbers both = {{"l.self_attn.k_scale", {0.5f}}, {"l.self_attn.v_proj.v_scale", {2.0f}}};
  CHECK(scales_of(both, KvFormat::kFloat8)->k == 0.5f);
  CHECK(scales_of(both, KvFormat::kFloat8)->v == 2);
  CHECK(scales_of(both, KvFormat::kInt8)->k == 1);
  CHECK(scales_of(Numbers(), KvFormat::kFloat8)->v == 1);
  const Numbers heads = {{"l.self_attn.k_scale", {0.5f, 1.0f}}};
  const Numbers zero = {{"l.self_attn.k_scale", {0.0f}}};
  CHECK(scales_of(heads, KvFormat::kCompute).ok());
  CHECK_THAT(scales_of(heads, KvFormat::kFloat8).status().message(),
             Catch::Matchers::Contains("a scale for each head"));
  CHECK_THAT(scales_of(zero, KvFormat::kFloat8).status().message(),
             Catch::Matchers::Contains("must be above 0"));
}

}  // namespace
}  // namespace tandem
