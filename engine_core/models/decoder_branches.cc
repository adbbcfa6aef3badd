// What few layers have beside a norm, attention and an MLP: those of Gemma 4, and Command R+'s
// norms.

#include "engine_core/models/decoder.h"

namespace tandem {

void Decoder::PrepareValues(const AttentionLayer& layer, const HeadShare& heads,
                            const Tensor& qkv) {
  const Tensor k = qkv.Columns(heads.q_size(), heads.kv_size());
  const Tensor v = qkv.Columns(heads.q_size() + heads.kv_size(), heads.kv_size());
  if (layer.keys_are_values) ops_->Convert(v, k);
  if (layer.v_norm.view().empty()) return;
  for (int64_t head = 0; head < heads.kv_heads.count; ++head) {
    const Tensor one = v.Columns(head * heads.head_dim, heads.head_dim);
    ops_->RmsNorm(one, one, layer.v_norm, norm_epsilon_);
  }
}

void Decoder::NormHeads(const AttentionLayer& layer, const Tensor& qkv) {
  const int64_t dim = heads_.head_dim;
  const auto norm = [&](const Tensor& heads, const Tensor& weights) {
    for (int64_t begin = 0; begin < heads.shape[1]; begin += dim) {
      const Tensor head = heads.Columns(begin, dim);
      ops_->LayerNorm(head, head, weights.Rows(begin, dim), layer.no_bias, norm_epsilon_);
    }
  };
  norm(qkv.Columns(0, heads_.q_size()), layer.q_head_norms);
  norm(qkv.Columns(heads_.q_size(), heads_.kv_size()), layer.k_head_norms);
}

Status Decoder::AllocateBeside(const LoadContext& context) {
  const int64_t tokens = context.limits.max_tokens, hidden = context.config.hidden_size;
  Device& device = context.backend.device();
  const DType res = context.backend.residual_dtype();
  ASSIGN_OR_RETURN(zeros_, device.Allocate(res, {tokens, hidden}));
  for (OwnedTensor* sum : {&sum_, &mixed_}) {
    ASSIGN_OR_RETURN(*sum, context.AllocateShared(res, {tokens, hidden}));
  }
  ASSIGN_OR_RETURN(router_input_,
                   device.Allocate(context.backend.activation_dtype(), {tokens, hidden}));
  return OkStatus();
}

void Decoder::RunBeside(const MlpLayer& mlp, const MixtureBeside& layer) {
  const Tensor residual = residual_, sum = RowsOf(sum_), mixed = RowsOf(mixed_);
  const Tensor normed = Normed();
  ops_->Convert(Written(sum), Written(RowsOf(zeros_)));
  residual_ = sum;
  RunMlp(mlp);
  residual_ = residual;

  ops_->RmsNorm(RowsOf(router_input_), residual, layer.router_norm.weight, norm_epsilon_);
  ops_->RmsNorm(normed, residual, layer.norm.weight, norm_epsilon_);
  ops_->Convert(Written(mixed), Written(RowsOf(zeros_)));
  mixer_->Run(layer.experts, mixed, normed, RowsOf(router_input_), &adapters_);
  split_.Gather(mixed, split_.Own(mixed));
  ops_->RmsNorm(normed, mixed, layer.post_norm.weight, norm_epsilon_);
  AddWhole(sum, normed);
  ops_->RmsNorm(normed, sum, layer.sum_norm.weight, norm_epsilon_);
  AddWhole(residual_, normed);
}

void Decoder::AddInput(const InputLayer& layer, int64_t layer_idx) {
  Norm({});
  const Tensor gated = layer_inputs_->Gated(num_tokens_), own = split_.Part(gated);
  Multiply(own, Normed(), layer.gate);
  layer_inputs_->Gate(own, layer_idx);
  split_.Gather(gated, own);
  AddBranch(gated, layer.projection, layer.post_norm);
}

}  // namespace tandem
