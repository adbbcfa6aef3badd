#pragma once

// What stands in the place of attention in layers that keep a state (weights/recurrent_config.h):
// a projection, a short convolution, a recurrence, a gated norm, and a projection back.
//
//   kDelta:        qkv, z, b, a = in(x); out(norm(delta_rule(silu(conv(qkv)), b, a)) silu(z))
//   kChannelDelta: qkv, f, g, b = in(x); with decay(f) for a, and sigmoid(gate(g)) for silu(z)
//   kScan:         z, xBC, dt = in(x); out(norm(scan(silu(conv(xBC)), dt) silu(z))), the norm also
//                  before the gate or not at all; Falcon-H1 scales what goes in and out
//   kSelective:    x, z = in(x); dt, B, C = select(silu(conv(x))), each normed;
//                  out(selective_scan(silu(conv(x)), step(dt), B, C) silu(z))
//   kShortConv:    B, C, x = in(x); out(C conv(B x))
//
// The state of a sequence lies in its cache blocks (kernels/recurrence.h), so nothing of it is
// here. One rank. Thread: engine loop. Owns: the buffers of a step, which all layers of a stage
// share. Shapes: T tokens, H hidden, C channels of the convolution, V numbers of all value heads.
// Sources: HF's Qwen3NextForCausalLM, Qwen3_5ForCausalLM, Mamba2ForCausalLM,
// FalconH1ForCausalLM, JambaForCausalLM, Lfm2ForCausalLM.

#include "engine_core/models/recurrent_layer.h"

namespace tandem {

class RecurrentMixer {
 public:
  static StatusOr<RecurrentMixer> Create(const LoadContext& context);

  // Room for what layer.in and layer.gates make of a step.  [T, .] act and f32.
  Tensor In(int64_t num_tokens) const { return in_.view().Rows(0, num_tokens); }
  Tensor Gates(int64_t num_tokens) const {
    const int64_t columns = shape_.kind == RecurrentKind::kDelta ? 2 : 1;
    return gates_.view().Rows(0, num_tokens).Columns(0, columns * shape_.num_value_heads);
  }
  // What layer.out is to multiply.  [T, V] act.
  Tensor Run(const RecurrentLayer& layer, const LayerKv& kv, const AttentionPlan& plan);

 private:
  explicit RecurrentMixer(const LoadContext& context);
  Tensor RunDelta(const RecurrentLayer& layer, const Tensor& in, const LayerKv& kv,
                  const AttentionPlan& plan);
  // The delta rule of the value heads of one turn (RecurrentConfig::num_turns).
  void RunTurn(const RecurrentLayer& layer, int64_t turn, const Tensor& values,
               const Tensor& convolved, const LayerKv& kv, const AttentionPlan& plan);
  Tensor RunScan(const RecurrentLayer& layer, const Tensor& in, const LayerKv& kv,
                 const AttentionPlan& plan);
  Tensor RunSelective(const RecurrentLayer& layer, const Tensor& in, const LayerKv& kv,
                      const AttentionPlan& plan);
  // kScan: values = out_scale norm(values) silu(gate), as the config orders them.
  void GateScan(const RecurrentLayer& layer, const Tensor& values, const Tensor& gate);
  Tensor RunShortConv(const RecurrentLayer& layer, const Tensor& in, const LayerKv& kv,
                      const AttentionPlan& plan);

  Ops* ops_;
  RecurrentConfig shape_;
  float norm_epsilon_;
  OwnedTensor in_, gates_;  // gates_ of kSelective: the steps [T, V] f32
  OwnedTensor selected_;    // [T, step_rank + 2 state_dim] act, kSelective
  OwnedTensor convolved_;   // [T, C] act
  OwnedTensor values_;      // [T, V] act
  OwnedTensor gate_;        // [T, V] act, kChannelDelta
};

}  // namespace tandem
