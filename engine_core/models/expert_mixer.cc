#include "engine_core/models/expert_mixer.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

Status CheckShape(const ModelConfig& config, const MoeShape& shape) {
  if (shape.num_experts < 1 || shape.top_k < 1 || shape.top_k > shape.num_experts) {
    return InvalidArgumentError("num_experts_per_tok " + std::to_string(shape.top_k) + " of " +
                                config.architecture + " must be in [1, num_experts], which is " +
                                std::to_string(shape.num_experts));
  }
  const RouteOptions& routing = shape.routing;
  const int64_t group_size = shape.num_experts / routing.num_groups;
  if (shape.num_experts % routing.num_groups != 0 || routing.top_groups > routing.num_groups ||
      group_size < routing.group_best || shape.top_k > group_size * routing.top_groups) {
    return InvalidArgumentError("n_group " + std::to_string(routing.num_groups) +
                                " and topk_group " + std::to_string(routing.top_groups) + " of " +
                                config.architecture + " must be groups of its " +
                                std::to_string(shape.num_experts) + " experts with room for " +
                                std::to_string(shape.top_k) + " per token");
  }
  const std::string activation = !shape.has_gate  ? "relu2"
                                 : shape.has_gelu ? "gelu_pytorch_tanh"
                                                  : "silu";
  if (config.hidden_act != activation) {
    return InvalidArgumentError("hidden_act " + config.hidden_act + " of " + config.architecture +
                                " must be " + activation);
  }
  return OkStatus();
}

}  // namespace

int64_t ExpertWidth(const ModelConfig& config, const MoeShape& shape) {
  return shape.latent_size > 0 ? shape.latent_size : config.hidden_size;
}

Slice OwnExperts(const LoadContext& context, const MoeShape& shape) {
  return context.splits_experts ? context.share.Of(shape.num_experts) : Slice{0, shape.num_experts};
}

ExpertMixer::ExpertMixer(const LoadContext& context, const MoeShape& shape)
    : ops_(&context.backend.ops()),
      shape_(shape),
      split_(context.share, context.ranks),
      splits_experts_(context.splits_experts),
      experts_(OwnExperts(context, shape)),
      inner_(context.share.Of(shape.intermediate_size)) {}

StatusOr<ExpertMixer> ExpertMixer::Create(const LoadContext& context, const MoeShape& shape) {
  RETURN_IF_ERROR(CheckShape(context.config, shape));
  Device& device = context.backend.device();
  ExpertMixer mixer(context, shape);
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens, pairs = tokens * shape.top_k;
  const int64_t experts = shape.num_experts, top_k = shape.top_k;
  const int64_t inner = shape.intermediate_size, hidden = ExpertWidth(context.config, shape);
  ASSIGN_OR_RETURN(mixer.logits_, device.Allocate(DType::kF32, {tokens, experts}));
  ASSIGN_OR_RETURN(mixer.ids_, device.Allocate(DType::kI32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.weights_, device.Allocate(DType::kF32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.pair_begin_, device.Allocate(DType::kI32, {experts + 1}));
  ASSIGN_OR_RETURN(mixer.chosen_experts_, device.Allocate(DType::kI32, {experts}));
  ASSIGN_OR_RETURN(mixer.pair_tokens_, device.Allocate(DType::kI32, {pairs}));
  ASSIGN_OR_RETURN(mixer.pairs_of_token_, device.Allocate(DType::kI32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.pair_weights_, device.Allocate(DType::kF32, {tokens, top_k}));
  ASSIGN_OR_RETURN(mixer.rows_, device.Allocate(act, {pairs, hidden}));
  if (shape.swiglu_limit > 0 || !shape.has_gate) {
    const int64_t own = context.splits_experts ? inner : mixer.inner_.count;
    ASSIGN_OR_RETURN(mixer.gate_up_, device.Allocate(act, {pairs, shape.has_gate ? 2 * own : own}));
  }
  if (shape.latent_size > 0) {
    ASSIGN_OR_RETURN(mixer.latent_, context.AllocateShared(act, {tokens, hidden}));
    for (OwnedTensor* sums : {&mixer.zeros_, &mixer.sums_}) {
      ASSIGN_OR_RETURN(*sums, device.Allocate(context.backend.residual_dtype(), {tokens, hidden}));
    }
  }
  if (shape.scales_input) {
    std::vector<float> ones(static_cast<size_t>(pairs), 1.0f);
    ASSIGN_OR_RETURN(mixer.ones_,
                     device.Upload(Tensor(ones.data(), DType::kF32, {tokens, top_k}), DType::kF32));
  }
  if (!context.splits_experts) {
    ASSIGN_OR_RETURN(mixer.activated_, context.AllocateShared(act, {pairs, inner}));
    return mixer;
  }
  ASSIGN_OR_RETURN(mixer.activated_, device.Allocate(act, {pairs, inner}));
  ASSIGN_OR_RETURN(mixer.results_, context.AllocateShared(act, {pairs, hidden}));
  ASSIGN_OR_RETURN(mixer.own_chosen_, device.Allocate(DType::kI32, {mixer.experts_.count}));
  return mixer;
}

ExpertPairs ExpertMixer::Pairs(int64_t num_tokens) const {
  return {.begin = pair_begin_,
          .chosen = chosen_experts_,
          .tokens = pair_tokens_.view().Rows(0, num_tokens * shape_.top_k),
          .of_token = pairs_of_token_.view().Rows(0, num_tokens),
          .weights = pair_weights_.view().Rows(0, num_tokens)};
}

ExpertPairs ExpertMixer::OwnPairs(const ExpertPairs& pairs) const {
  ExpertPairs own = pairs;
  own.begin = pairs.begin.Rows(experts_.begin, experts_.count + 1);
  own.chosen = own_chosen_;
  auto* chosen = own_chosen_.view().Data<int32_t>();
  std::fill_n(chosen, experts_.count, -1);
  const auto* begin = own.begin.Data<int32_t>();
  for (int32_t e = 0; e < experts_.count; ++e) {
    if (begin[e + 1] > begin[e]) *chosen++ = e;
  }
  return own;
}

void ExpertMixer::Run(const MoeLayer& layer, const Tensor& residual, const Tensor& normed,
                      const Tensor& router_input, AdapterPicker* adapters) {
  if (shape_.latent_size == 0) return Mix(layer, residual, normed, router_input, adapters);
  const Tensor latent = latent_.view().Rows(0, normed.rows());
  const Tensor sums = sums_.view().Rows(0, normed.rows());
  const Tensor part = split_.Part(latent);
  MultiplyBy(layer.to_latent, part, normed, LinearEpilogue::kStore, adapters, ops_);
  split_.Gather(latent, part);
  ops_->Convert(sums, zeros_.view().Rows(0, normed.rows()));
  Mix(layer, sums, latent, router_input, adapters);
  // All ranks have read the latent before they met in the mixture.
  const Tensor own = split_.Own(latent);
  ops_->Convert(own, split_.Own(sums));
  split_.Gather(latent, own);
  MultiplyBy(layer.from_latent, split_.Own(residual), latent, LinearEpilogue::kAddResidual,
             adapters, ops_);
}

void ExpertMixer::Mix(const MoeLayer& layer, const Tensor& residual, const Tensor& x,
                      const Tensor& router_input, AdapterPicker* adapters) {
  const int64_t num_tokens = x.rows();
  const Tensor logits = logits_.view().Rows(0, num_tokens);
  const Tensor ids = ids_.view().Rows(0, num_tokens);
  const Tensor weights = weights_.view().Rows(0, num_tokens);
  MultiplyBy(layer.router, logits, router_input, LinearEpilogue::kStore, adapters, ops_);
  RouteOptions routing = shape_.routing;
  routing.bias = layer.router_bias;
  routing.expert_scale = layer.expert_scale;
  ops_->RouteTopK(ids, weights, logits, routing);
  const ExpertPairs pairs = Pairs(num_tokens);
  ops_->GroupByExpert(pairs, ids, weights);
  const int64_t num_pairs = pairs.tokens.rows();
  ops_->GatherRows(rows_.view().Rows(0, num_pairs), x, pairs.tokens);
  if (shape_.scales_input) {
    ops_->ScaleRows(rows_.view().Rows(0, num_pairs), weights, pairs.tokens);
  }
  const Tensor results = (splits_experts_ ? results_ : rows_).view().Rows(0, num_pairs);
  if (splits_experts_) {
    RunOwnExperts(layer, OwnPairs(pairs), results, adapters);
  } else {
    RunShares(layer, pairs, results, adapters);
  }
  ops_->AddWeightedRows(split_.Own(residual), split_.Own(results), pairs.of_token,
                        shape_.scales_input ? ones_.view().Rows(0, num_tokens) : pairs.weights);
}

void ExpertMixer::MultiplyExperts(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                                  const Tensor& bias, std::span<const int> sites,
                                  const ExpertPairs& pairs, LinearEpilogue epilogue,
                                  AdapterPicker* adapters) {
  const AdapterRows rows = adapters->Pick(sites, pairs.tokens);
  if (rows.empty()) return ops_->ExpertLinear(out, x, experts, pairs, epilogue, bias);
  CHECK(bias.empty());
  ops_->AdaptedExpertLinear(out, x, experts, pairs, epilogue, rows);
}

void ExpertMixer::RunShares(const MoeLayer& layer, const ExpertPairs& pairs, const Tensor& results,
                            AdapterPicker* adapters) {
  const Tensor rows = rows_.view().Rows(0, results.rows());
  const Tensor activated = activated_.view().Rows(0, results.rows());
  const Tensor own = split_.Part(activated);
  Activate(own, rows, layer, pairs, adapters);
  split_.Gather(activated, own);
  MultiplyExperts(split_.Own(results), activated, *layer.down, layer.down_bias, layer.down_sites,
                  pairs, LinearEpilogue::kStore, adapters);
}

void ExpertMixer::Activate(const Tensor& out, const Tensor& x, const MoeLayer& layer,
                           const ExpertPairs& pairs, AdapterPicker* adapters) {
  if (shape_.has_gate && shape_.swiglu_limit == 0) {
    const auto gate = shape_.has_gelu ? LinearEpilogue::kGeluAndMul : LinearEpilogue::kSiluAndMul;
    return MultiplyExperts(out, x, *layer.gate_up, layer.gate_up_bias, layer.gate_up_sites, pairs,
                           gate, adapters);
  }
  const Tensor gate_up = gate_up_.view().Rows(0, x.rows());
  MultiplyExperts(gate_up, x, *layer.gate_up, layer.gate_up_bias, layer.gate_up_sites, pairs,
                  LinearEpilogue::kStore, adapters);
  if (!shape_.has_gate) return ops_->Activate(out, gate_up, Nonlinearity::kSquaredRelu);
  ops_->ClampedSiluAndMul(out, gate_up, shape_.swiglu_limit);
}

void ExpertMixer::RunOwnExperts(const MoeLayer& layer, const ExpertPairs& pairs,
                                const Tensor& results, AdapterPicker* adapters) {
  const Tensor rows = rows_.view().Rows(0, results.rows());
  const Tensor activated = activated_.view().Rows(0, results.rows());
  Activate(activated, rows, layer, pairs, adapters);
  MultiplyExperts(results, activated, *layer.down, layer.down_bias, layer.down_sites, pairs,
                  LinearEpilogue::kStore, adapters);
  // Each rank has rows of its own, and no part of columns: memory that all see.
  if (split_.ranks() != nullptr) split_.ranks()->Meet();
}

}  // namespace tandem
