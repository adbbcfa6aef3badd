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
// here. Drafts leave no state. What goes in for them is kept for each layer, so that states can
// take in those that were right, without the model's products: until the next step, and in a
// pipeline, whose stages run further steps before one is sampled, for as many steps as there are
// stages. Where ranks share a layer, each has some heads (recurrent_share.h); what they make is
// gathered before the projection back, before the norm where its groups are on several ranks, and
// with kSelective what the convolution makes, too, before select. Thread: engine loop. Owns: the
// buffers of a step, which all layers of a stage share, and what is kept. Shapes: T tokens, as
// recurrent_layer.h. Sources: HF's Qwen3NextForCausalLM, Qwen3_5ForCausalLM, Mamba2ForCausalLM,
// FalconH1ForCausalLM, JambaForCausalLM, Lfm2ForCausalLM.

#include <vector>

#include "engine_core/models/rank_split.h"
#include "engine_core/models/recurrent_layer.h"

namespace tandem {

class RecurrentMixer {
 public:
  static StatusOr<RecurrentMixer> Create(const LoadContext& context);

  // Room for what layer.in and layer.gates make of a step.  [T, .] act and f32.
  Tensor In(int64_t num_tokens) const { return in_.view().Rows(0, num_tokens); }
  Tensor Gates(int64_t num_tokens) const {
    const int64_t columns = own_.kind == RecurrentKind::kDelta ? 2 : 1;
    return gates_.view().Rows(0, num_tokens).Columns(0, columns * own_.num_value_heads);
  }
  // Starts a step; what was kept of the last one of that turn is gone.
  // REQUIRES: turn is below the number of stages.
  void Begin(int turn) {
    turn_ = turn;
    Kept().clear();
  }
  // What layer.out is to multiply.  [T, all V] act. Layer and plan live until the next step.
  Tensor Run(const RecurrentLayer& layer, const LayerKv& kv, const AttentionPlan& plan);
  // The states of all layers take in drafts of the step of that turn, which follow what they have.
  // The plans of Run describe these tokens by now.  drafts: [T] i32, which of the step's drafts
  // each of them is.
  void TakeInDrafts(const Tensor& drafts, int turn);

 private:
  explicit RecurrentMixer(const LoadContext& context);
  Status AllocateStep(const LoadContext& context);
  Status AllocateDelta(const LoadContext& context);
  Status AllocateScan(const LoadContext& context);
  Status AllocateSelective(const LoadContext& context);
  Status AllocateKept(const LoadContext& context);

  // Whether there is more than `in` that goes into a layer.
  bool has_gates() const {
    return own_.kind == RecurrentKind::kDelta || own_.kind == RecurrentKind::kChannelDelta;
  }
  // A layer of a step, of which is kept what went in.
  struct KeptLayer {
    const RecurrentLayer* layer;
    LayerKv kv;
    const AttentionPlan* plan;
  };
  std::vector<KeptLayer>& Kept() { return kept_[static_cast<size_t>(turn_)]; }
  // The first row of what is kept of a layer in this turn.
  int64_t KeptBegin(size_t layer_idx) const {
    return (turn_ * num_kept_layers_ + static_cast<int64_t>(layer_idx)) * max_drafts_;
  }
  void Keep(const RecurrentLayer& layer, const LayerKv& kv, const AttentionPlan& plan);
  Tensor RunIn(const RecurrentLayer& layer, const LayerKv& kv, const AttentionPlan& plan);
  Tensor RunDelta(const RecurrentLayer& layer, const Tensor& in, const LayerKv& kv,
                  const AttentionPlan& plan);
  // The delta rule of the value heads of one turn (RecurrentConfig::num_turns), and their norm.
  void RunTurn(const RecurrentLayer& layer, int64_t turn, const Tensor& convolved,
               const Tensor& gate, const LayerKv& kv, const AttentionPlan& plan);
  Tensor RunScan(const RecurrentLayer& layer, const Tensor& in, const LayerKv& kv,
                 const AttentionPlan& plan);
  Tensor RunSelective(const RecurrentLayer& layer, const Tensor& in, const LayerKv& kv,
                      const AttentionPlan& plan);
  // kScan: out_scale norm(values) silu(gate), as the config orders them, of the rank's `own`
  // columns of values, which are not gathered yet.
  Tensor GateScan(const RecurrentLayer& layer, const Tensor& values, const Tensor& own,
                  const Tensor& gate);
  // The norm of groups that are on several ranks.
  Tensor NormAcross(const Tensor& values, const Tensor& own, const Tensor& gate,
                    const GatedNormOptions& options);
  Tensor RunShortConv(const RecurrentLayer& layer, const Tensor& in, const LayerKv& kv,
                      const AttentionPlan& plan);

  Ops* ops_;
  RankSplit split_;
  RecurrentConfig all_, own_;  // of all ranks, of this one
  bool norms_across_;
  float norm_epsilon_;
  OwnedTensor in_, gates_;  // gates_ of kSelective: the steps [T, V] f32
  OwnedTensor selected_;    // [T, step_rank + 2 state_dim] act, kSelective
  OwnedTensor convolved_;   // [T, C] act; kSelective: [T, all V], shared
  OwnedTensor values_;      // [T, all V] act, shared
  OwnedTensor gate_;        // kChannelDelta: [T, V] act; with norms_across_ [T, all V], shared
  OwnedTensor normed_;      // [T, all V] act, with norms_across_
  int turn_ = 0;            // of the step
  // By turn, the layers that have run.
  std::vector<std::vector<KeptLayer>> kept_;
  int64_t max_drafts_ = 0, num_kept_layers_ = 0;
  OwnedTensor kept_in_, kept_gates_;  // [turns * layers * max_drafts_, .] as In and Gates
};

}  // namespace tandem
