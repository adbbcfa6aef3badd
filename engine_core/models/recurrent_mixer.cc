#include "engine_core/models/recurrent_mixer.h"

#include <limits>

namespace tandem {

RecurrentMixer::RecurrentMixer(const LoadContext& context)
    : ops_(&context.backend.ops()),
      shape_(context.config.recurrent),
      norm_epsilon_(static_cast<float>(context.config.rms_norm_eps)) {
  CHECK_EQ(context.share.size, 1);
}

StatusOr<RecurrentMixer> RecurrentMixer::Create(const LoadContext& context) {
  RecurrentMixer mixer(context);
  const RecurrentConfig& shape = mixer.shape_;
  Device& device = context.backend.device();
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens;
  const bool is_conv = shape.kind == RecurrentKind::kShortConv;
  const bool is_scan = shape.kind == RecurrentKind::kScan;
  const int64_t values = is_conv ? shape.hidden_size : shape.value_size();
  const bool is_channel_delta = shape.kind == RecurrentKind::kChannelDelta;
  const int64_t in = is_conv            ? 3 * shape.hidden_size
                     : is_channel_delta ? shape.channels() + 2 * shape.value_dim
                     : is_scan          ? shape.channels() + values + shape.num_value_heads
                                        : shape.channels() + values;
  ASSIGN_OR_RETURN(mixer.in_, device.Allocate(act, {tokens, in}));
  if (shape.kind == RecurrentKind::kSelective) {
    ASSIGN_OR_RETURN(mixer.selected_,
                     device.Allocate(act, {tokens, shape.step_rank + 2 * shape.key_dim}));
    ASSIGN_OR_RETURN(mixer.gates_, device.Allocate(DType::kF32, {tokens, values}));
  }
  if (shape.kind == RecurrentKind::kDelta || is_channel_delta) {
    const int64_t decays = is_channel_delta ? shape.key_size() : shape.num_value_heads;
    ASSIGN_OR_RETURN(mixer.gates_,
                     device.Allocate(DType::kF32, {tokens, shape.num_value_heads + decays}));
  }
  if (is_channel_delta) {
    ASSIGN_OR_RETURN(mixer.gate_, device.Allocate(act, {tokens, values}));
  }
  ASSIGN_OR_RETURN(mixer.convolved_, device.Allocate(act, {tokens, shape.channels()}));
  ASSIGN_OR_RETURN(mixer.values_, device.Allocate(act, {tokens, values}));
  return mixer;
}

Tensor RecurrentMixer::Run(const RecurrentLayer& layer, const LayerKv& kv,
                           const AttentionPlan& plan) {
  const Tensor in = In(plan.num_tokens());
  switch (shape_.kind) {
    case RecurrentKind::kDelta:
    case RecurrentKind::kChannelDelta:
      return RunDelta(layer, in, kv, plan);
    case RecurrentKind::kScan:
      return RunScan(layer, in, kv, plan);
    case RecurrentKind::kSelective:
      return RunSelective(layer, in, kv, plan);
    case RecurrentKind::kShortConv:
    case RecurrentKind::kNone:
      break;
  }
  return RunShortConv(layer, in, kv, plan);
}

Tensor RecurrentMixer::RunDelta(const RecurrentLayer& layer, const Tensor& in, const LayerKv& kv,
                                const AttentionPlan& plan) {
  const Tensor convolved = convolved_.view().Rows(0, in.rows());
  const Tensor values = values_.view().Rows(0, in.rows());
  ops_->Convolve(convolved, in.Columns(0, shape_.channels()),
                 {.weight = layer.conv, .bias = layer.conv_bias, .has_silu = true},
                 {.kv = kv, .offset = 0}, plan);
  const Tensor gates = gates_.view().Rows(0, in.rows());
  const bool is_channel_delta = shape_.kind == RecurrentKind::kChannelDelta;
  const int64_t heads = shape_.num_value_heads, dim = shape_.value_dim;
  Tensor gate;
  if (is_channel_delta) {
    gate = gate_.view().Rows(0, in.rows());
    ops_->Linear(gates.Columns(heads, shape_.key_size()), in.Columns(shape_.channels(), dim),
                 *layer.decay.weight);
    ops_->Linear(gate, in.Columns(shape_.channels() + dim, dim), *layer.gate.weight);
  } else {
    gate = in.Columns(shape_.channels(), shape_.value_size());
  }
  for (int64_t turn = 0; turn < shape_.num_turns(); ++turn) {
    RunTurn(layer, turn, values, convolved, kv, plan);
  }
  ops_->GatedNorm(values, values, gate,
                  {.weight = layer.norm,
                   .group_size = dim,
                   .epsilon = norm_epsilon_,
                   .has_sigmoid = is_channel_delta});
  return values;
}

// Values of a later turn take the place of the first one's after the keys.
void RecurrentMixer::RunTurn(const RecurrentLayer& layer, int64_t turn, const Tensor& values,
                             const Tensor& convolved, const LayerKv& kv,
                             const AttentionPlan& plan) {
  const int64_t heads = shape_.num_value_heads / shape_.num_turns();
  const int64_t size = heads * shape_.value_dim, keys = 2 * shape_.key_size();
  const Tensor gates = gates_.view().Rows(0, values.rows());
  const int64_t num_gates = gates.shape[1] / shape_.num_turns();
  const int64_t num_decays = layer.dt_bias.view().rows() / shape_.num_turns();
  if (turn > 0) {
    ops_->Convert(convolved.Columns(keys, size), convolved.Columns(keys + turn * size, size));
  }
  ops_->DeltaRule(values.Columns(turn * size, size), convolved.Columns(0, keys + size),
                  gates.Columns(turn * num_gates, num_gates),
                  {.num_key_heads = shape_.num_key_heads,
                   .num_value_heads = heads,
                   .key_dim = shape_.key_dim,
                   .value_dim = shape_.value_dim,
                   .a_log = layer.a_log.view().Rows(turn * heads, heads),
                   .dt_bias = layer.dt_bias.view().Rows(turn * num_decays, num_decays)},
                  {.kv = kv, .offset = shape_.conv_state_size() + turn * size * shape_.key_dim},
                  plan);
}

Tensor RecurrentMixer::RunScan(const RecurrentLayer& layer, const Tensor& in, const LayerKv& kv,
                               const AttentionPlan& plan) {
  const Tensor convolved = convolved_.view().Rows(0, in.rows());
  const Tensor values = values_.view().Rows(0, in.rows());
  const int64_t inner = shape_.value_size(), channels = shape_.channels();
  ops_->Convolve(convolved, in.Columns(inner, channels),
                 {.weight = layer.conv, .bias = layer.conv_bias, .has_silu = true},
                 {.kv = kv, .offset = 0}, plan);
  const bool has_limit = shape_.max_step > 0;
  const Tensor dt = in.Columns(inner + channels, shape_.num_value_heads);
  if (shape_.in_scales[4] != 1) ops_->Scale(dt, static_cast<float>(shape_.in_scales[4]));
  ops_->StateScan(values, convolved, dt,
                  {.num_heads = shape_.num_value_heads,
                   .head_dim = shape_.value_dim,
                   .num_groups = shape_.num_groups,
                   .state_dim = shape_.key_dim,
                   .a_log = layer.a_log,
                   .dt_bias = layer.dt_bias,
                   .d = layer.d,
                   .dt_min = static_cast<float>(shape_.min_step),
                   .dt_max = has_limit ? static_cast<float>(shape_.max_step)
                                       : std::numeric_limits<float>::infinity()},
                  {.kv = kv, .offset = shape_.conv_state_size()}, plan);
  GateScan(layer, values, in.Columns(0, inner));
  return values;
}

void RecurrentMixer::GateScan(const RecurrentLayer& layer, const Tensor& values,
                              const Tensor& gate) {
  if (shape_.in_scales[0] != 1) ops_->Scale(gate, static_cast<float>(shape_.in_scales[0]));
  if (shape_.has_norm) {
    ops_->GatedNorm(values, values, gate,
                    {.weight = layer.norm,
                     .group_size = shape_.value_size() / shape_.num_groups,
                     .epsilon = norm_epsilon_,
                     .gates_first = !shape_.norms_before_gate});
  } else {
    ops_->Activate(gate, gate, Nonlinearity::kSilu);
    ops_->MultiplyBy(values, gate);
  }
  if (shape_.out_scale != 1) ops_->Scale(values, static_cast<float>(shape_.out_scale));
}

Tensor RecurrentMixer::RunSelective(const RecurrentLayer& layer, const Tensor& in,
                                    const LayerKv& kv, const AttentionPlan& plan) {
  const int64_t inner = shape_.value_size(), states = shape_.key_dim, rank = shape_.step_rank;
  const Tensor convolved = convolved_.view().Rows(0, in.rows());
  const Tensor values = values_.view().Rows(0, in.rows());
  const Tensor selected = selected_.view().Rows(0, in.rows());
  const Tensor steps = gates_.view().Rows(0, in.rows());
  ops_->Convolve(convolved, in.Columns(0, inner),
                 {.weight = layer.conv, .bias = layer.conv_bias, .has_silu = true},
                 {.kv = kv, .offset = 0}, plan);
  ops_->Linear(selected, convolved, *layer.select.weight);
  const auto norm = [&](int64_t first, int64_t size, const OwnedTensor& weight) {
    const Tensor part = selected.Columns(first, size);
    ops_->RmsNorm(part, part, weight, norm_epsilon_);
  };
  norm(0, rank, layer.dt_norm);
  norm(rank, states, layer.b_norm);
  norm(rank + states, states, layer.c_norm);
  ops_->Linear(steps, selected.Columns(0, rank), *layer.step.weight);
  ops_->SelectiveScan(values, convolved, steps, selected.Columns(rank, 2 * states),
                      {.a = layer.a, .dt_bias = layer.dt_bias, .d = layer.d},
                      {.kv = kv, .offset = shape_.conv_state_size()}, plan);
  const Tensor gate = in.Columns(inner, inner);
  ops_->Activate(gate, gate, Nonlinearity::kSilu);
  ops_->MultiplyBy(values, gate);
  return values;
}

Tensor RecurrentMixer::RunShortConv(const RecurrentLayer& layer, const Tensor& in,
                                    const LayerKv& kv, const AttentionPlan& plan) {
  const int64_t hidden = shape_.hidden_size;
  const Tensor values = values_.view().Rows(0, in.rows());
  const Tensor x = in.Columns(2 * hidden, hidden);
  ops_->MultiplyBy(x, in.Columns(0, hidden));
  ops_->Convolve(values, x, {.weight = layer.conv, .bias = layer.conv_bias},
                 {.kv = kv, .offset = 0}, plan);
  ops_->MultiplyBy(values, in.Columns(hidden, hidden));
  return values;
}

}  // namespace tandem
