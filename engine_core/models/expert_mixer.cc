#include "engine_core/models/expert_mixer.h"

#include <utility>

namespace tandem {
namespace {

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

}  // namespace

StatusOr<ExpertMixer> ExpertMixer::Create(const LoadContext& context, const MoeShape& shape) {
  RETURN_IF_ERROR(CheckShape(context.config, shape));
  Device& device = context.backend.device();
  ExpertMixer mixer(&context.backend.ops(), shape);
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens, pairs = tokens * shape.top_k;
  const int64_t experts = shape.num_experts, top_k = shape.top_k;
  const int64_t inner = context.share.Of(shape.intermediate_size).count;
  ASSIGN_OR_RETURN(mixer.logits_, device.Allocate(DType::kF32, {tokens, experts}));
  ASSIGN_OR_RETURN(mixer.ids_, device.Allocate(DType::kI32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.weights_, device.Allocate(DType::kF32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.pair_begin_, device.Allocate(DType::kI32, {experts + 1}));
  ASSIGN_OR_RETURN(mixer.chosen_experts_, device.Allocate(DType::kI32, {experts}));
  ASSIGN_OR_RETURN(mixer.pair_tokens_, device.Allocate(DType::kI32, {pairs}));
  ASSIGN_OR_RETURN(mixer.pairs_of_token_, device.Allocate(DType::kI32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.pair_weights_, device.Allocate(DType::kF32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.rows_, device.Allocate(act, {pairs, context.config.hidden_size}));
  ASSIGN_OR_RETURN(mixer.activated_, device.Allocate(act, {pairs, inner}));
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

}  // namespace tandem
