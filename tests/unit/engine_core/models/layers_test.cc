#include "engine_core/models/layers.h"

#include <cmath>
#include <vector>

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

std::vector<float> Sum(std::vector<float> a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
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

  std::vector<float> down(static_cast<size_t>(kTokens * config.hidden_size)), out = down;
  constexpr int kRanks = 2;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Loaded part = layer.Load({.rank = rank, .size = kRanks});
    const HeadShare& all = whole.heads;
    const HeadShare& mine = part.heads;
    REQUIRE(mine.q_size() == all.q_size() / kRanks);
    const std::vector<float> part_qkv = layer.Run(part.attention.qkv, x);
    CHECK(Columns(part_qkv, {0, mine.q_size()}) == Columns(qkv, mine.q_rows()));
    CHECK(Columns(part_qkv, {mine.q_size(), mine.kv_size()}) ==
          Columns(qkv, mine.kv_rows().Shifted(all.q_size())));
    CHECK(Columns(part_qkv, {mine.q_size() + mine.kv_size(), mine.kv_size()}) ==
          Columns(qkv, mine.kv_rows().Shifted(all.q_size() + all.kv_size())));
    const std::vector<float> part_activated =
        layer.Run(part.mlp.up, x, LinearEpilogue::kSiluAndMul);
    CHECK(part_activated == Columns(activated, part.inner));
    if (!config.attention_bias) {  // a bias of the output projection is every rank's
      out = Sum(out, layer.Run(part.attention.out, Columns(attended, mine.q_rows())));
      down = Sum(down, layer.Run(part.mlp.down, part_activated));
    }
  }
  if (config.attention_bias) return;
  CHECK(MaxError(out, layer.Run(whole.attention.out, attended)) < 1e-5f);
  CHECK(MaxError(down, layer.Run(whole.mlp.down, activated)) < 1e-5f);
}

}  // namespace
}  // namespace tandem
