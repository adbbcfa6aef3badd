#include "engine_core/models/recurrent_mixer.h"

#include <limits>
#include <utility>

#include "engine_core/models/recurrent_share.h"

namespace tandem {

RecurrentMixer::RecurrentMixer(const LoadContext& context)
    : ops_(&context.backend.ops()),
      split_(context.share, context.ranks),
      all_(context.config.recurrent),
      norm_epsilon_(static_cast<float>(context.config.rms_norm_eps)) {
  RecurrentShare share = RecurrentShareOf(all_, context.share);
  own_ = std::move(share.own);
  norms_across_ = share.norms_across;
}

StatusOr<RecurrentMixer> RecurrentMixer::Create(const LoadContext& context) {
  RecurrentMixer mixer(context);
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens;
  const bool is_conv = mixer.own_.kind == RecurrentKind::kShortConv;
  const int64_t all_values = is_conv ? mixer.all_.hidden_size : mixer.all_.value_size();
  ASSIGN_OR_RETURN(mixer.values_, context.AllocateShared(act, {tokens, all_values}));
  RETURN_IF_ERROR(mixer.AllocateStep(context));
  RETURN_IF_ERROR(mixer.AllocateKept(context));
  return mixer;
}

Status RecurrentMixer::AllocateStep(const LoadContext& context) {
  Device& device = context.backend.device();
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens;
  switch (own_.kind) {
    case RecurrentKind::kDelta:
    case RecurrentKind::kChannelDelta:
      RETURN_IF_ERROR(AllocateDelta(context));
      break;
    case RecurrentKind::kScan:
      RETURN_IF_ERROR(AllocateScan(context));
      break;
    case RecurrentKind::kSelective:
      return AllocateSelective(context);
    case RecurrentKind::kShortConv:
    case RecurrentKind::kNone:
      ASSIGN_OR_RETURN(in_, device.Allocate(act, {tokens, 3 * own_.hidden_size}));
      return OkStatus();
  }
  ASSIGN_OR_RETURN(convolved_, device.Allocate(act, {tokens, own_.channels()}));
  return OkStatus();
}

Status RecurrentMixer::AllocateKept(const LoadContext& context) {
  const int num_turns = context.stage.size;
  kept_.resize(static_cast<size_t>(num_turns));
  max_drafts_ = context.limits.max_drafts;
  if (max_drafts_ == 0) return OkStatus();
  const Slice layers = LayersOf(context.config, context.stage);
  for (int64_t i = layers.begin; i < layers.end(); ++i) {
    num_kept_layers_ += all_.HasState(i) ? 1 : 0;
  }
  if (num_kept_layers_ == 0) return OkStatus();
  for (auto& kept : kept_) kept.reserve(static_cast<size_t>(num_kept_layers_));
  Device& device = context.backend.device();
  const int64_t rows = num_turns * num_kept_layers_ * max_drafts_;
  ASSIGN_OR_RETURN(kept_in_, device.Allocate(in_.view().dtype, {rows, in_.view().shape[1]}));
  if (!has_gates()) return OkStatus();
  ASSIGN_OR_RETURN(kept_gates_, device.Allocate(DType::kF32, {rows, Gates(1).shape[1]}));
  return OkStatus();
}

Status RecurrentMixer::AllocateDelta(const LoadContext& context) {
  Device& device = context.backend.device();
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens, values = own_.value_size();
  const bool is_channel_delta = own_.kind == RecurrentKind::kChannelDelta;
  const int64_t beside = is_channel_delta ? 2 * own_.value_dim : values;
  const int64_t decays = is_channel_delta ? own_.key_size() : own_.num_value_heads;
  ASSIGN_OR_RETURN(in_, device.Allocate(act, {tokens, own_.channels() + beside}));
  ASSIGN_OR_RETURN(gates_, device.Allocate(DType::kF32, {tokens, own_.num_value_heads + decays}));
  if (is_channel_delta) {
    ASSIGN_OR_RETURN(gate_, device.Allocate(act, {tokens, values}));
  }
  return OkStatus();
}

Status RecurrentMixer::AllocateScan(const LoadContext& context) {
  Device& device = context.backend.device();
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens, all_values = all_.value_size();
  const int64_t in = own_.channels() + own_.value_size() + own_.num_value_heads;
  ASSIGN_OR_RETURN(in_, device.Allocate(act, {tokens, in}));
  if (norms_across_) {
    ASSIGN_OR_RETURN(gate_, context.AllocateShared(act, {tokens, all_values}));
    ASSIGN_OR_RETURN(normed_, device.Allocate(act, {tokens, all_values}));
  }
  return OkStatus();
}

Status RecurrentMixer::AllocateSelective(const LoadContext& context) {
  Device& device = context.backend.device();
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens, values = own_.value_size();
  const int64_t selected = own_.step_rank + 2 * own_.key_dim;
  ASSIGN_OR_RETURN(in_, device.Allocate(act, {tokens, 2 * values}));
  ASSIGN_OR_RETURN(convolved_, context.AllocateShared(act, {tokens, all_.value_size()}));
  ASSIGN_OR_RETURN(selected_, device.Allocate(act, {tokens, selected}));
  ASSIGN_OR_RETURN(gates_, device.Allocate(DType::kF32, {tokens, values}));
  return OkStatus();
}

Tensor RecurrentMixer::Run(const RecurrentLayer& layer, const LayerKv& kv,
                           const AttentionPlan& plan) {
  Keep(layer, kv, plan);
  return RunIn(layer, kv, plan);
}

// Before it is overwritten.
void RecurrentMixer::Keep(const RecurrentLayer& layer, const LayerKv& kv,
                          const AttentionPlan& plan) {
  const int64_t first = KeptBegin(Kept().size());
  int64_t num_kept = 0;
  for (const BatchSequence& sequence : plan.sequences()) {
    const int64_t count = sequence.num_drafts;
    if (count == 0) continue;
    const int64_t from = sequence.first_token + sequence.num_certain(), to = first + num_kept;
    num_kept += count;
    CHECK_LE(num_kept, max_drafts_);
    ops_->Convert(kept_in_.view().Rows(to, count), in_.view().Rows(from, count));
    if (!has_gates()) continue;
    ops_->Convert(kept_gates_.view().Rows(to, count), Gates(from + count).Rows(from, count));
  }
  if (num_kept > 0) Kept().push_back({&layer, kv, &plan});
}

void RecurrentMixer::TakeInDrafts(const Tensor& drafts, int turn) {
  turn_ = turn;
  const int64_t count = drafts.rows();
  for (size_t i = 0; i < Kept().size(); ++i) {
    const int64_t first = KeptBegin(i);
    ops_->GatherRows(In(count), kept_in_.view().Rows(first, max_drafts_), drafts);
    if (has_gates()) {
      ops_->GatherRows(Gates(count), kept_gates_.view().Rows(first, max_drafts_), drafts);
    }
    const KeptLayer& kept = Kept()[i];
    RunIn(*kept.layer, kept.kv, *kept.plan);
  }
}

Tensor RecurrentMixer::RunIn(const RecurrentLayer& layer, const LayerKv& kv,
                             const AttentionPlan& plan) {
  const Tensor in = In(plan.num_tokens());
  switch (own_.kind) {
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
  const int64_t channels = own_.channels(), heads = own_.num_value_heads, dim = own_.value_dim;
  const Tensor convolved = convolved_.view().Rows(0, in.rows());
  ops_->Convolve(convolved, in.Columns(0, channels),
                 {.weight = layer.conv, .bias = layer.conv_bias, .has_silu = true},
                 {.kv = kv, .offset = 0}, plan);
  Tensor gate;
  if (own_.kind == RecurrentKind::kChannelDelta) {
    gate = gate_.view().Rows(0, in.rows());
    const Tensor gates = gates_.view().Rows(0, in.rows());
    ops_->Linear(gates.Columns(heads, own_.key_size()), in.Columns(channels, dim),
                 *layer.decay.weight);
    ops_->Linear(gate, in.Columns(channels + dim, dim), *layer.gate.weight);
  } else {
    gate = in.Columns(channels, own_.value_size());
  }
  for (int64_t turn = 0; turn < own_.num_turns(); ++turn) {
    RunTurn(layer, turn, convolved, gate, kv, plan);
  }
  return values_.view().Rows(0, in.rows());
}

// Values of a later turn take the place of the first one's after the keys.
void RecurrentMixer::RunTurn(const RecurrentLayer& layer, int64_t turn, const Tensor& convolved,
                             const Tensor& gate, const LayerKv& kv, const AttentionPlan& plan) {
  const int64_t turns = own_.num_turns(), heads = own_.num_value_heads / turns;
  const int64_t size = heads * own_.value_dim, keys = 2 * own_.key_size();
  const int64_t all_size = all_.value_size() / turns;
  const Tensor values = values_.view().Rows(0, convolved.rows()).Columns(turn * all_size, all_size);
  const Tensor own = split_.Part(values);
  const Tensor gates = gates_.view().Rows(0, convolved.rows());
  const int64_t num_gates = gates.shape[1] / turns;
  const int64_t num_decays = layer.dt_bias.view().rows() / turns;
  if (turn > 0) {
    ops_->Convert(convolved.Columns(keys, size), convolved.Columns(keys + turn * size, size));
  }
  ops_->DeltaRule(own, convolved.Columns(0, keys + size),
                  gates.Columns(turn * num_gates, num_gates),
                  {.num_key_heads = own_.num_key_heads,
                   .num_value_heads = heads,
                   .key_dim = own_.key_dim,
                   .value_dim = own_.value_dim,
                   .a_log = layer.a_log.view().Rows(turn * heads, heads),
                   .dt_bias = layer.dt_bias.view().Rows(turn * num_decays, num_decays)},
                  {.kv = kv, .offset = own_.conv_state_size() + turn * size * own_.key_dim}, plan);
  ops_->GatedNorm(own, own, gate.Columns(turn * size, size),
                  {.weight = layer.norm,
                   .group_size = own_.value_dim,
                   .epsilon = norm_epsilon_,
                   .has_sigmoid = own_.kind == RecurrentKind::kChannelDelta});
  split_.Gather(values, own);
}

Tensor RecurrentMixer::RunScan(const RecurrentLayer& layer, const Tensor& in, const LayerKv& kv,
                               const AttentionPlan& plan) {
  const Tensor convolved = convolved_.view().Rows(0, in.rows());
  const Tensor values = values_.view().Rows(0, in.rows());
  const Tensor own = split_.Part(values);
  const int64_t inner = own_.value_size(), channels = own_.channels();
  ops_->Convolve(convolved, in.Columns(inner, channels),
                 {.weight = layer.conv, .bias = layer.conv_bias, .has_silu = true},
                 {.kv = kv, .offset = 0}, plan);
  const bool has_limit = own_.max_step > 0;
  const Tensor dt = in.Columns(inner + channels, own_.num_value_heads);
  if (own_.in_scales[4] != 1) ops_->Scale(dt, static_cast<float>(own_.in_scales[4]));
  ops_->StateScan(own, convolved, dt,
                  {.num_heads = own_.num_value_heads,
                   .head_dim = own_.value_dim,
                   .num_groups = own_.num_groups,
                   .state_dim = own_.key_dim,
                   .a_log = layer.a_log,
                   .dt_bias = layer.dt_bias,
                   .d = layer.d,
                   .dt_min = static_cast<float>(own_.min_step),
                   .dt_max = has_limit ? static_cast<float>(own_.max_step)
                                       : std::numeric_limits<float>::infinity()},
                  {.kv = kv, .offset = own_.conv_state_size()}, plan);
  return GateScan(layer, values, own, in.Columns(0, inner));
}

Tensor RecurrentMixer::GateScan(const RecurrentLayer& layer, const Tensor& values,
                                const Tensor& own, const Tensor& gate) {
  if (own_.in_scales[0] != 1) ops_->Scale(gate, static_cast<float>(own_.in_scales[0]));
  const GatedNormOptions norm = {.weight = layer.norm,
                                 .group_size = all_.value_size() / all_.num_groups,
                                 .epsilon = norm_epsilon_,
                                 .gates_first = !own_.norms_before_gate};
  const auto out_scale = static_cast<float>(own_.out_scale);
  if (norms_across_) {
    const Tensor normed = NormAcross(values, own, gate, norm);
    if (out_scale != 1) ops_->Scale(normed, out_scale);
    return normed;
  }
  if (own_.has_norm) {
    ops_->GatedNorm(own, own, gate, norm);
  } else {
    ops_->Activate(gate, gate, Nonlinearity::kSilu);
    ops_->MultiplyBy(own, gate);
  }
  if (out_scale != 1) ops_->Scale(own, out_scale);
  split_.Gather(values, own);
  return values;
}

Tensor RecurrentMixer::NormAcross(const Tensor& values, const Tensor& own, const Tensor& gate,
                                  const GatedNormOptions& options) {
  const Tensor gates = gate_.view().Rows(0, values.rows());
  const Tensor normed = normed_.view().Rows(0, values.rows());
  split_.Gather(values, own);
  ops_->Convert(split_.Own(gates), gate);
  split_.Gather(gates, split_.Own(gates));
  ops_->GatedNorm(normed, values, gates, options);
  return normed;
}

Tensor RecurrentMixer::RunSelective(const RecurrentLayer& layer, const Tensor& in,
                                    const LayerKv& kv, const AttentionPlan& plan) {
  const int64_t inner = own_.value_size(), states = own_.key_dim, rank = own_.step_rank;
  const Tensor convolved = convolved_.view().Rows(0, in.rows());
  const Tensor values = values_.view().Rows(0, in.rows());
  const Tensor selected = selected_.view().Rows(0, in.rows());
  const Tensor steps = gates_.view().Rows(0, in.rows());
  const Tensor own_convolved = split_.Part(convolved);
  ops_->Convolve(own_convolved, in.Columns(0, inner),
                 {.weight = layer.conv, .bias = layer.conv_bias, .has_silu = true},
                 {.kv = kv, .offset = 0}, plan);
  split_.Gather(convolved, own_convolved);
  ops_->Linear(selected, convolved, *layer.select.weight);
  const auto norm = [&](int64_t first, int64_t size, const OwnedTensor& weight) {
    const Tensor part = selected.Columns(first, size);
    ops_->RmsNorm(part, part, weight, norm_epsilon_);
  };
  norm(0, rank, layer.dt_norm);
  norm(rank, states, layer.b_norm);
  norm(rank + states, states, layer.c_norm);
  ops_->Linear(steps, selected.Columns(0, rank), *layer.step.weight);
  const Tensor own = split_.Part(values);
  ops_->SelectiveScan(own, split_.Own(convolved), steps, selected.Columns(rank, 2 * states),
                      {.a = layer.a, .dt_bias = layer.dt_bias, .d = layer.d},
                      {.kv = kv, .offset = own_.conv_state_size()}, plan);
  const Tensor gate = in.Columns(inner, inner);
  ops_->Activate(gate, gate, Nonlinearity::kSilu);
  ops_->MultiplyBy(own, gate);
  split_.Gather(values, own);
  return values;
}

Tensor RecurrentMixer::RunShortConv(const RecurrentLayer& layer, const Tensor& in,
                                    const LayerKv& kv, const AttentionPlan& plan) {
  const int64_t channels = own_.channels();
  const Tensor values = values_.view().Rows(0, in.rows());
  const Tensor own = split_.Part(values);
  const Tensor x = in.Columns(2 * channels, channels);
  ops_->MultiplyBy(x, in.Columns(0, channels));
  ops_->Convolve(own, x, {.weight = layer.conv, .bias = layer.conv_bias}, {.kv = kv, .offset = 0},
                 plan);
  ops_->MultiplyBy(own, in.Columns(channels, channels));
  split_.Gather(values, own);
  return values;
}

}  // namespace tandem
