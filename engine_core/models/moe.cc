#include "engine_core/models/moe.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace tandem {
namespace {

struct MoeLayer {
  LinearLayer router;             // [E, H]
  std::vector<MlpLayer> experts;  // E
};

// The buffers that all mixtures of a model share.
class ExpertMixer {
 public:
  static StatusOr<ExpertMixer> Create(const LoadContext& context, const MoeShape& shape);

  // residual += the mixture of normed.  residual: [T, H] res; normed: [T, H] act.
  void Run(const MoeLayer& layer, const Tensor& residual, const Tensor& normed);

 private:
  ExpertMixer(Backend* backend, const MoeShape& shape) : backend_(backend), shape_(shape) {}
  void Route(const MoeLayer& layer, const Tensor& normed);
  void GroupByExpert(int64_t num_tokens);

  Backend* backend_;
  MoeShape shape_;
  OwnedTensor logits_;   // [T, E] f32
  OwnedTensor ids_;      // [T, K] i32
  OwnedTensor weights_;  // [T, K] f32

  // A pair is a token and one of its experts; sorted by expert, then token.
  OwnedTensor pair_tokens_;     // [T * K] i32
  OwnedTensor pair_weights_;    // [T * K] f32
  OwnedTensor pair_rows_;       // [T * K, H] act: what goes into the experts, then what comes out
  OwnedTensor pair_activated_;  // [T * K, I] act

  // The same on the host, where they are sorted.
  std::vector<int32_t> host_ids_, host_tokens_;
  std::vector<float> host_weights_, host_pair_weights_;
  std::vector<int64_t> expert_begin_;  // [E + 1] first pair of each expert
  std::vector<int64_t> next_pair_;     // [E]
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
  bool can_be_captured() const override { return false; }  // the host groups pairs by expert

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

StatusOr<MlpLayer> LoadExpert(const LoadContext& context, std::span<const RowBlock> gate_up,
                              const RowBlock& down, int64_t intermediate_size) {
  MlpLayer expert;
  ASSIGN_OR_RETURN(expert.up, LoadLinear(context, gate_up, context.config.hidden_size, false,
                                         context.formats.layers, true));
  ASSIGN_OR_RETURN(expert.down, LoadLinear(context, {&down, 1}, intermediate_size, false));
  return expert;
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
  for (int64_t e = 0; e < shape.num_experts; ++e) {
    MlpLayer expert;
    if (is_stacked) {
      const RowBlock gate_up[] = {{stack + ".gate_up_proj", 2 * inner, e, shape.num_experts}};
      const RowBlock down = {stack + ".down_proj", hidden, e, shape.num_experts};
      ASSIGN_OR_RETURN(expert, LoadExpert(context, gate_up, down, inner));
    } else {
      const std::string name = block + ".experts." + std::to_string(e) + ".";
      const RowBlock gate_up[] = {{name + names.gate, inner}, {name + names.up, inner}};
      ASSIGN_OR_RETURN(expert, LoadExpert(context, gate_up, {name + names.down, hidden}, inner));
    }
    layer.experts.push_back(std::move(expert));
  }
  return layer;
}

StatusOr<ExpertMixer> ExpertMixer::Create(const LoadContext& context, const MoeShape& shape) {
  RETURN_IF_ERROR(CheckShape(context.config, shape));
  Backend& backend = context.backend;
  ExpertMixer mixer(&backend, shape);
  const DType act = backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens, pairs = tokens * shape.top_k;
  const int64_t inner = shape.intermediate_size;
  ASSIGN_OR_RETURN(mixer.logits_, backend.Allocate(DType::kF32, {tokens, shape.num_experts}));
  ASSIGN_OR_RETURN(mixer.ids_, backend.Allocate(DType::kI32, {tokens, shape.top_k}));
  ASSIGN_OR_RETURN(mixer.weights_, backend.Allocate(DType::kF32, {tokens, shape.top_k}));
  ASSIGN_OR_RETURN(mixer.pair_tokens_, backend.Allocate(DType::kI32, {pairs}));
  ASSIGN_OR_RETURN(mixer.pair_weights_, backend.Allocate(DType::kF32, {pairs}));
  ASSIGN_OR_RETURN(mixer.pair_rows_, backend.Allocate(act, {pairs, context.config.hidden_size}));
  ASSIGN_OR_RETURN(mixer.pair_activated_, backend.Allocate(act, {pairs, inner}));
  mixer.host_ids_.resize(static_cast<size_t>(pairs));
  mixer.host_tokens_.resize(static_cast<size_t>(pairs));
  mixer.host_weights_.resize(static_cast<size_t>(pairs));
  mixer.host_pair_weights_.resize(static_cast<size_t>(pairs));
  mixer.expert_begin_.resize(static_cast<size_t>(shape.num_experts) + 1);
  mixer.next_pair_.resize(static_cast<size_t>(shape.num_experts));
  return mixer;
}

void ExpertMixer::Route(const MoeLayer& layer, const Tensor& normed) {
  const int64_t tokens = normed.rows(), top_k = shape_.top_k;
  const Tensor logits = logits_.view().Rows(0, tokens);
  const Tensor ids = ids_.view().Rows(0, tokens), weights = weights_.view().Rows(0, tokens);
  backend_->Linear(logits, normed, *layer.router.weight);
  backend_->RouteTopK(ids, weights, logits, shape_.renormalize);
  backend_->CopyOut(Tensor(host_ids_.data(), DType::kI32, {tokens, top_k}), ids);
  backend_->CopyOut(Tensor(host_weights_.data(), DType::kF32, {tokens, top_k}), weights);
}

// Counts, then places: each expert's pairs stand together, in the order of their tokens.
void ExpertMixer::GroupByExpert(int64_t num_tokens) {
  const auto num_pairs = static_cast<size_t>(num_tokens * shape_.top_k);
  const auto top_k = static_cast<size_t>(shape_.top_k);
  std::fill(expert_begin_.begin(), expert_begin_.end(), 0);
  for (size_t i = 0; i < num_pairs; ++i) ++expert_begin_[static_cast<size_t>(host_ids_[i]) + 1];
  for (size_t e = 1; e < expert_begin_.size(); ++e) expert_begin_[e] += expert_begin_[e - 1];
  std::copy_n(expert_begin_.begin(), next_pair_.size(), next_pair_.begin());
  for (size_t i = 0; i < num_pairs; ++i) {
    const auto pair = static_cast<size_t>(next_pair_[static_cast<size_t>(host_ids_[i])]++);
    host_tokens_[pair] = static_cast<int32_t>(i / top_k);
    host_pair_weights_[pair] = host_weights_[i];
  }
  const auto pairs = static_cast<int64_t>(num_pairs);
  backend_->CopyIn(pair_tokens_.view().Rows(0, pairs),
                   Tensor(host_tokens_.data(), DType::kI32, {pairs}));
  backend_->CopyIn(pair_weights_.view().Rows(0, pairs),
                   Tensor(host_pair_weights_.data(), DType::kF32, {pairs}));
}

void ExpertMixer::Run(const MoeLayer& layer, const Tensor& residual, const Tensor& normed) {
  Route(layer, normed);
  GroupByExpert(normed.rows());
  const int64_t pairs = normed.rows() * shape_.top_k;
  const Tensor tokens = pair_tokens_.view().Rows(0, pairs);
  const Tensor rows = pair_rows_.view().Rows(0, pairs);
  const Tensor activated = pair_activated_.view().Rows(0, pairs);
  auto for_each_expert = [&](auto run) {
    for (size_t e = 0; e < layer.experts.size(); ++e) {
      const int64_t begin = expert_begin_[e], count = expert_begin_[e + 1] - begin;
      if (count > 0) run(layer.experts[e], begin, count);
    }
  };
  backend_->GatherRows(rows, normed, tokens);
  for_each_expert([&](const MlpLayer& expert, int64_t begin, int64_t count) {
    backend_->Linear(activated.Rows(begin, count), rows.Rows(begin, count), *expert.up.weight, {},
                     LinearEpilogue::kSiluAndMul);
  });
  for_each_expert([&](const MlpLayer& expert, int64_t begin, int64_t count) {
    backend_->Linear(rows.Rows(begin, count), activated.Rows(begin, count), *expert.down.weight);
  });
  backend_->ScatterAdd(residual, rows, tokens, pair_weights_.view().Rows(0, pairs));
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
