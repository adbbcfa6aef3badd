#include "engine_core/models/moe.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace tandem {
namespace {

struct MoeLayer {
  LinearLayer router;                      // [E, H]
  std::unique_ptr<PackedExperts> gate_up;  // [2 I, H] each
  std::unique_ptr<PackedExperts> down;     // [H, I] each
};

// The buffers that all mixtures of a model share.
class ExpertMixer {
 public:
  static StatusOr<ExpertMixer> Create(const LoadContext& context, const MoeShape& shape);

  // residual += the mixture of normed.  residual: [T, H] res; normed: [T, H] act.
  void Run(const MoeLayer& layer, const Tensor& residual, const Tensor& normed);

 private:
  ExpertMixer(Ops* ops, const MoeShape& shape) : ops_(ops), shape_(shape) {}
  // The pairs of so many tokens.
  ExpertPairs Pairs(int64_t num_tokens) const;

  Ops* ops_;
  MoeShape shape_;
  OwnedTensor logits_;   // [T, E] f32
  OwnedTensor ids_;      // [T, K] i32
  OwnedTensor weights_;  // [T, K] f32
  // Of ExpertPairs.
  OwnedTensor pair_begin_, chosen_experts_, pair_tokens_, pairs_of_token_, pair_weights_;
  OwnedTensor rows_;       // [T * K, H] act: what goes into the experts, then what comes out
  OwnedTensor activated_;  // [T * K, I] act
};

struct MoeDecoderLayer {
  LlamaLayer dense;             // its mlp is empty where there is a mixture
  std::optional<MoeLayer> moe;  // else a dense layer
};

class MoeModel final : public Model {
 public:
  MoeModel(Decoder decoder, ExpertMixer mixer, std::vector<MoeDecoderLayer> layers)
      : decoder_(std::move(decoder)), mixer_(std::move(mixer)), layers_(std::move(layers)) {}

  void Forward(const ModelStep& step) override {
    decoder_.Embed(step.token_ids);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const LlamaLayer& layer = layers_[i].dense;
      decoder_.Norm(layer.input_norm);
      decoder_.Attend(layer.attention, step.kv_cache->layer(static_cast<int>(i)), *step.plan);
      decoder_.Norm(layer.post_attention_norm);
      if (layers_[i].moe) {
        mixer_.Run(*layers_[i].moe, decoder_.residual(), decoder_.normed());
      } else {
        decoder_.RunMlp(layer.mlp);
      }
    }
  }

  void Logits(const Tensor& logits, const Tensor& rows) override { decoder_.Logits(logits, rows); }

 private:
  Decoder decoder_;
  ExpertMixer mixer_;
  std::vector<MoeDecoderLayer> layers_;
};

Status CheckShape(const ModelConfig& config, const MoeShape& shape) {
  if (shape.num_experts < 1 || shape.top_k < 1 || shape.top_k > shape.num_experts) {
    return InvalidArgumentError("num_experts_per_tok " + std::to_string(shape.top_k) + " of " +
                                config.architecture + " must be in [1, num_experts], which is " +
                                std::to_string(shape.num_experts));
  }
  if (config.hidden_act != "silu") {
    return InvalidArgumentError("hidden_act " + config.hidden_act + " of " + config.architecture +
                                " must be silu");
  }
  return OkStatus();
}

// `prefix`: "model.layers.<i>".
StatusOr<MoeLayer> LoadMoe(const LoadContext& context, const std::string& prefix,
                           const MoeNames& names, const MoeShape& shape) {
  RETURN_IF_ERROR(CheckShape(context.config, shape));
  const int64_t hidden = context.config.hidden_size, inner = shape.intermediate_size;
  const std::string stack = prefix + ".mlp.experts";
  const bool is_stacked = context.weights.Has(stack + ".gate_up_proj");
  const std::string block = prefix + (is_stacked ? ".mlp" : "." + names.block);
  MoeLayer layer;
  const RowBlock router[] = {{block + ".gate", shape.num_experts}};
  ASSIGN_OR_RETURN(layer.router,
                   LoadLinear(context, router, hidden, false, WeightFormat::kCompute));
  std::vector<std::unique_ptr<PackedMatrix>> gate_ups, downs;
  for (int64_t e = 0; e < shape.num_experts; ++e) {
    const std::string name = block + ".experts." + std::to_string(e) + ".";
    const RowBlock stacked[] = {{stack + ".gate_up_proj", 2 * inner, e, shape.num_experts}};
    const RowBlock apart[] = {{name + names.gate, inner}, {name + names.up, inner}};
    const RowBlock down = is_stacked ? RowBlock{stack + ".down_proj", hidden, e, shape.num_experts}
                                     : RowBlock{name + names.down, hidden};
    LinearLayer linear;
    ASSIGN_OR_RETURN(
        linear, LoadLinear(context, is_stacked ? std::span<const RowBlock>(stacked) : apart, hidden,
                           false, context.formats.layers, /*is_gated=*/true));
    gate_ups.push_back(std::move(linear.weight));
    ASSIGN_OR_RETURN(linear, LoadLinear(context, {&down, 1}, inner, false));
    downs.push_back(std::move(linear.weight));
  }
  ASSIGN_OR_RETURN(layer.gate_up, context.backend.PackExperts(std::move(gate_ups)));
  ASSIGN_OR_RETURN(layer.down, context.backend.PackExperts(std::move(downs)));
  return layer;
}

StatusOr<ExpertMixer> ExpertMixer::Create(const LoadContext& context, const MoeShape& shape) {
  RETURN_IF_ERROR(CheckShape(context.config, shape));
  Device& device = context.backend.device();
  ExpertMixer mixer(&context.backend.ops(), shape);
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens, pairs = tokens * shape.top_k;
  const int64_t experts = shape.num_experts, top_k = shape.top_k;
  ASSIGN_OR_RETURN(mixer.logits_, device.Allocate(DType::kF32, {tokens, experts}));
  ASSIGN_OR_RETURN(mixer.ids_, device.Allocate(DType::kI32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.weights_, device.Allocate(DType::kF32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.pair_begin_, device.Allocate(DType::kI32, {experts + 1}));
  ASSIGN_OR_RETURN(mixer.chosen_experts_, device.Allocate(DType::kI32, {experts}));
  ASSIGN_OR_RETURN(mixer.pair_tokens_, device.Allocate(DType::kI32, {pairs}));
  ASSIGN_OR_RETURN(mixer.pairs_of_token_, device.Allocate(DType::kI32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.pair_weights_, device.Allocate(DType::kF32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.rows_, device.Allocate(act, {pairs, context.config.hidden_size}));
  ASSIGN_OR_RETURN(mixer.activated_, device.Allocate(act, {pairs, shape.intermediate_size}));
  return mixer;
}

ExpertPairs ExpertMixer::Pairs(int64_t num_tokens) const {
  return {.begin = pair_begin_,
          .chosen = chosen_experts_,
          .tokens = pair_tokens_.view().Rows(0, num_tokens * shape_.top_k),
          .of_token = pairs_of_token_.view().Rows(0, num_tokens),
          .weights = pair_weights_.view().Rows(0, num_tokens)};
}

void ExpertMixer::Run(const MoeLayer& layer, const Tensor& residual, const Tensor& normed) {
  const int64_t num_tokens = normed.rows();
  const Tensor logits = logits_.view().Rows(0, num_tokens);
  const Tensor ids = ids_.view().Rows(0, num_tokens);
  const Tensor weights = weights_.view().Rows(0, num_tokens);
  ops_->Linear(logits, normed, *layer.router.weight);
  ops_->RouteTopK(ids, weights, logits, shape_.renormalize);
  const ExpertPairs pairs = Pairs(num_tokens);
  ops_->GroupByExpert(pairs, ids, weights);
  const Tensor rows = rows_.view().Rows(0, pairs.tokens.rows());
  const Tensor activated = activated_.view().Rows(0, pairs.tokens.rows());
  ops_->GatherRows(rows, normed, pairs.tokens);
  ops_->ExpertLinear(activated, rows, *layer.gate_up, pairs, LinearEpilogue::kSiluAndMul);
  ops_->ExpertLinear(rows, activated, *layer.down, pairs);
  ops_->AddWeightedRows(residual, rows, pairs.of_token, pairs.weights);
}

StatusOr<MoeDecoderLayer> LoadLayer(const LoadContext& context, const MoeFamily& family,
                                    int64_t layer_idx) {
  const std::string prefix = "model.layers." + std::to_string(layer_idx);
  MoeDecoderLayer layer;
  RETURN_IF_ERROR(LoadLlamaNorms(context, prefix, &layer.dense));
  ASSIGN_OR_RETURN(layer.dense.attention, family.load_attention(context, prefix + ".self_attn"));
  layer.dense.attention.options.sliding_window = context.config.WindowOf(layer_idx);
  if (context.config.IsMixture(layer_idx)) {
    ASSIGN_OR_RETURN(layer.moe, LoadMoe(context, prefix, family.names, family.shape));
  } else {
    ASSIGN_OR_RETURN(layer.dense.mlp, LoadGatedMlp(context, prefix + ".mlp"));
  }
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Model>> LoadMoeLike(const LoadContext& context, const MoeFamily& family) {
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Load(context));
  ASSIGN_OR_RETURN(ExpertMixer mixer, ExpertMixer::Create(context, family.shape));
  std::vector<MoeDecoderLayer> layers;
  for (int64_t i = 0; i < context.config.num_layers; ++i) {
    ASSIGN_OR_RETURN(MoeDecoderLayer layer, LoadLayer(context, family, i));
    layers.push_back(std::move(layer));
  }
  return std::unique_ptr<Model>(
      std::make_unique<MoeModel>(std::move(decoder), std::move(mixer), std::move(layers)));
}

}  // namespace tandem
