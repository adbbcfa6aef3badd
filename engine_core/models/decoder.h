#pragma once

// What the layers of a stage run on: the hidden states of the step, the buffers that all layers
// share, the embedding before the first layer and the head after the last one. A layer calls Norm,
// Attend, RunMlp and RunMixture in the order of its architecture.
// Where several ranks share the stage, each writes its columns of the tensors that the next product
// needs as a whole, then gathers those of the others. The weights are the rank's rows.
// Thread: engine loop. Owns: weights of embedding and head, activations; borrows the backend.
// Shapes: T tokens, H hidden, V vocabulary; "own" sizes are the rank's (rank_share.h). "act" and
// "res" are the backend's activation and residual types.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine_core/models/adapter_weights.h"
#include "engine_core/models/expert_mixer.h"
#include "engine_core/models/latent_attention.h"
#include "engine_core/models/layer_inputs.h"
#include "engine_core/models/layers.h"
#include "engine_core/models/rank_split.h"
#include "engine_core/models/recurrent_mixer.h"
#include "engine_core/models/step_rope.h"

namespace tandem {

// What an architecture does differently around its layers.
struct DecoderOptions {
  std::string embedding = "model.embed_tokens";
  std::string positions;       // a table of learned positions, added to the embedding; empty: none
  int64_t first_position = 0;  // the row of that table for position 0
  std::string token_types;     // a table that is added likewise, by ModelStep::token_types
  std::string embedding_norm;  // a LayerNorm of what is embedded; empty: none
  std::string layers = "model.layers";
  std::string final_norm = "model.norm";  // empty: none
  bool has_layer_norm = false;            // the final norm is a LayerNorm
  bool has_norm_bias = true;              // with a bias
  bool has_embedding_norm_bias = true;
  std::string head = "lm_head";
  bool has_head_bias = false;
  float embedding_scale = 1;
  float norm_offset = 0;   // added to the final norm's weight
  float logits_scale = 1;  // multiplies logits, before the cap
  float logits_soft_cap = 0;
  // The residual is kept divided by this number, for a model that multiplies with it what its
  // layers add. Its norms give the same then, and the epsilons are divided by its square.
  float residual_unit = 1;
  bool is_rope_interleaved = false;
  std::vector<float> q_scale = {};  // by position, for layers with scales_q
  std::optional<RopeConfig> local_rope = {};
  std::optional<MoeShape> mixture = {};  // for layers that call RunMixture or RunBeside
  bool has_mixture_beside = false;       // for RunBeside
  bool has_layer_inputs = false;         // for AddInput
};

// A mixture beside an MLP (Gemma 4): each has norms of its own, and their sum has one.
struct MixtureBeside {
  NormLayer router_norm;  // of the residual, for the router
  NormLayer norm;         // of the residual, for the experts
  MoeLayer experts;
  NormLayer post_norm;  // of what they add up to
  NormLayer sum_norm;   // of the sum with the MLP's
};

// Rows of a step that no table has, as those in place of the embedding table's.
struct EmbeddedRows {
  int64_t first = 0;
  Tensor values;  // [n, H] f32, in backend memory or staging memory (Device::AllocateStaging)
};

class Decoder {
 public:
  // With the embedding if context.stage is the first stage, with the head if it is the last.
  static StatusOr<Decoder> Load(const LoadContext& context, DecoderOptions options);

  // Before a step. The adapters live until the next one; null: none.
  void SetAdapters(const StepAdapters* adapters) { adapters_.Begin(adapters); }
  // Before a step, as ModelStep has them; all live until the next one.
  void SetPositions(const Tensor& mrope_positions, const Tensor& last_seen);
  void SetLayerInputs(const Tensor& room) {
    if (layer_inputs_) layer_inputs_->Begin(room);
  }
  // Starts a step: residual = the embeddings of the tokens at those positions, of those types where
  // the model has types ([T] i32 each), or the rows given in their place. It is at `room`
  // ([T, H] res) unless that is empty.
  void Embed(const Tensor& token_ids, const Tensor& positions, const Tensor& token_types,
             std::span<const EmbeddedRows> embedded, const Tensor& room);
  // Starts a step: residual = hidden, which the step overwrites.  [T, H] res.
  void Continue(const Tensor& hidden);

  // normed = the norm of the residual.
  void Norm(const NormLayer& norm);
  // The two halves of Attend, for a layer that takes another norm of the residual between them.
  void ProjectQkv(const AttentionLayer& layer) { MultiplyNormed(QkvOf(layer), layer.qkv); }
  void AttendProjected(const AttentionLayer& layer, const LayerKv& kv, const AttentionPlan& plan) {
    AttendQkv(RowsOf(qkv_), layer, kv, plan);
  }
  // residual = norm(residual), a LayerNorm.
  void NormResidual(const NormLayer& norm);
  // residual += out(attention(qkv(normed))), its post_norm before the sum.
  void Attend(const AttentionLayer& layer, const LayerKv& kv, const AttentionPlan& plan);
  // The same with x in place of normed: [T, qkv's columns] act.
  void AttendTo(const Tensor& x, const AttentionLayer& layer, const LayerKv& kv,
                const AttentionPlan& plan);
  // residual += out(latent attention(down(normed))).
  void AttendLatent(const LatentLayer& layer, const LayerKv& kv, const AttentionPlan& plan);
  // residual += out(the recurrence of in(normed)).
  void Recur(const RecurrentLayer& layer, const LayerKv& kv, const AttentionPlan& plan);
  // Its two halves, for a layer with attention beside it.
  void ProjectRecurrent(const RecurrentLayer& layer);
  void RecurProjected(const RecurrentLayer& layer, const LayerKv& kv, const AttentionPlan& plan) {
    AddBranch(recurrent_->Run(layer, kv, plan), layer.out, {});
  }
  // Before a step: RecurrentMixer::Begin; after it: TakeInDrafts of its layers.
  void SetTurn(int turn) {
    if (recurrent_) recurrent_->Begin(turn);
  }
  void TakeInDrafts(const Tensor& drafts, int turn) {
    if (recurrent_) recurrent_->TakeInDrafts(drafts, turn);
  }
  // residual += down(activation(up(normed))), its post_norm before the sum.
  void RunMlp(const MlpLayer& layer);
  // residual += the mixture of normed, and what the shared expert makes of it.
  void RunMixture(const MoeLayer& layer);
  // residual += sum_norm(what RunMlp adds + what the experts add to 0, normed). Only where
  // DecoderOptions says so, as the next one.
  void RunBeside(const MlpLayer& mlp, const MixtureBeside& layer);
  // residual += post_norm(projection(gelu(gate(residual)) * the token's input to that layer)).
  void AddInput(const InputLayer& layer, int64_t layer_idx);
  // residual[rows] += what they have for the layer, if that is one of the first.
  void AddDeepstack(std::span<const EmbeddedRows> rows, int64_t layer_idx);
  // residual *= factor
  void ScaleResidual(float factor) {
    ops_->Scale(Written(residual()), factor);
    Meet();
  }

  // The hidden states of the step.  [T, H] res.
  const Tensor& residual() {
    GatherResidual();
    return residual_;
  }
  // What tokens bring to the layers of all stages, [T, L I] res: LayerInputs. Empty: nothing.
  Tensor layer_inputs() const { return layer_inputs_ ? layer_inputs_->All(num_tokens_) : Tensor(); }
  // logits = head(final_norm(residual[rows])). With several ranks, of those of the first.
  void Logits(const Tensor& logits, const Tensor& rows);

  // ---- for heads that draft: one rank, no adapters ----
  // out = the hidden states as they are.  out: [T, H] act.
  void CopyStates(const Tensor& out) { ops_->Convert(out, residual()); }
  // out = final_norm(residual).  out: [T, H] act.
  void NormStates(const Tensor& out);
  const PackedMatrix& embedding_table() const { return *embedding_.weight; }
  const PackedMatrix& head() const {
    return lm_head_.weight == nullptr ? *embedding_.weight : *lm_head_.weight;
  }

 private:
  struct RopeTensors {
    OwnedTensor cos, sin;  // empty views: the model has no RoPE
  };

  Decoder(const LoadContext& context, DecoderOptions options);
  Status LoadEmbedding(const LoadContext& context);
  Status LoadHead(const LoadContext& context);
  StatusOr<RopeTensors> LoadRope(const LoadContext& context, const RopeConfig& rope,
                                 int64_t rotary_dim) const;
  Status AllocateActivations(const LoadContext& context);
  Status AllocateBeside(const LoadContext& context);

  // Whether there are other ranks, which see the same tensors.
  bool shares_memory() const { return ranks_ != nullptr && ranks_->is_shared(); }
  // Waits until the other ranks have written their parts, too.
  void Meet() const {
    if (ranks_ != nullptr) ranks_->Meet();
  }
  // The columns of the other ranks, where the residual still lacks what they have added.
  void GatherResidual();
  // The rank's columns of it are new.
  void AddedOwn();
  // The columns of a tensor of all ranks that this one writes: its own where they share memory.
  Tensor Written(const Tensor& x) const { return shares_memory() ? split_.Own(x) : x; }
  // out += x, both whole at each rank, before and after.
  void AddWhole(const Tensor& out, const Tensor& x) {
    ops_->Add(Written(out), Written(x));
    Meet();
  }
  // The rows [begin, begin + ids.rows()) of the residual.
  void EmbedRows(int64_t begin, const Tensor& ids, const Tensor& positions,
                 const Tensor& token_types);
  // Its two parts: of the ids of the rank's table, those of tokens from `begin` on, and what is
  // added to embeddings.
  void EmbedIds(int64_t begin, const Tensor& out, const Tensor& ids);
  void FinishEmbedding(int64_t begin, const Tensor& out, const Tensor& positions,
                       const Tensor& token_types);
  // The norm of what is embedded, in place.
  void NormEmbedded(const Tensor& rows);
  void NormEmbeddedRows(std::span<const EmbeddedRows> embedded);
  // Those whose ids are in the rank's part of the vocabulary, where all ranks see the residual.
  void EmbedOwnRows(const Tensor& token_ids, const Tensor& positions, const Tensor& token_types);
  // Where each has its own.
  void EmbedParts(const Tensor& token_ids, const Tensor& positions);
  // The rest of Attend, from the qkv of the step.
  void AttendQkv(const Tensor& qkv, const AttentionLayer& layer, const LayerKv& kv,
                 const AttentionPlan& plan);
  // Makes v of qkv: from k where it has no rows, and its norm.
  void PrepareValues(const AttentionLayer& layer, const HeadShare& heads, const Tensor& qkv);
  // RunMlp; with a gate, what goes into down is multiplied by sigmoid(gate(normed)).
  void RunGatedMlp(const MlpLayer& layer, const LinearLayer* gate);
  // The norms of single heads.
  void NormHeads(const AttentionLayer& layer, const Tensor& qkv);
  // The norms of whole projections, of which each rank has a part.
  void NormProjections(const AttentionLayer& layer, const Tensor& qkv);
  // out = f(up(normed)).
  void ActivateUp(const Tensor& out, const MlpLayer& layer, Nonlinearity f);
  // The rank's columns of the logits of rows.
  void OwnLogits(const Tensor& logits, const Tensor& rows);
  Tensor RowsOf(const OwnedTensor& buffer) const { return buffer.view().Rows(0, num_tokens_); }
  // What the layer's projection fills.
  Tensor QkvOf(const AttentionLayer& layer) const {
    return RowsOf(qkv_).Columns(0, layer.qkv.weight->n());
  }
  // normed_, computed if it is still to be.
  Tensor Normed();
  // out = layer(x).
  void Multiply(const Tensor& out, const Tensor& x, const LinearLayer& layer,
                LinearEpilogue epilogue = LinearEpilogue::kStore);
  // out = layer(normed), with the norm on the way in when it is still to be done.
  void MultiplyNormed(const Tensor& out, const LinearLayer& layer,
                      LinearEpilogue epilogue = LinearEpilogue::kStore);
  // residual += norm(out(x)); the norm may be empty.
  void AddBranch(const Tensor& x, const LinearLayer& out, const NormLayer& post_norm);

  Device* device_;
  Ops* ops_;
  DecoderOptions options_;
  RankExchange* ranks_;  // null: there is one
  RankSplit split_;
  float norm_epsilon_ = 0;
  HeadShare all_heads_, heads_;  // of the model, of the rank
  RankShare share_;
  RankColumns vocabulary_, kv_columns_;
  bool writes_k_;               // not a copy of what another rank writes
  LinearLayer embedding_;       // [own V, H]; the first stage, or a tied head
  LinearLayer position_table_;  // [max positions, H]; null: none
  LinearLayer type_table_;      // [token types, H]; null: none
  // [own V, H]. A head that is tied to the embedding has no weight, and may have adapters apart.
  LinearLayer lm_head_;
  NormLayer embedding_norm_;  // of the first stage
  NormLayer final_norm_;      // of the last stage
  OwnedTensor q_scale_;       // [max_positions]; empty view: none
  RopeTensors rope_, local_rope_;
  std::optional<ExpertMixer> mixer_;
  std::optional<RecurrentMixer> recurrent_;
  std::optional<LayerInputs> layer_inputs_;
  std::optional<LatentAttention> latent_;  // in place of the buffers of the other attention
  AdapterPicker adapters_;
  std::optional<StepRope> step_rope_;  // of models with M-RoPE

  StepRope::Angles turned_;   // of this step; empty: the tables of rope_, by position
  Tensor last_seen_;          // [T] i32 of this step, or empty
  int64_t num_tokens_ = 0;    // of this step
  Tensor residual_;           // [T, H] res, of this step
  bool lacks_parts_ = false;  // of the residual, those of other ranks: before the next read of it
  OwnedTensor embedded_;      // [T, H] res, of the first stage
  OwnedTensor positions_;     // [T, H] res, with position_table_
  OwnedTensor normed_;        // [T, H] act, not filled while pending_norm_ is not empty
  Tensor pending_norm_;       // [H] weight of an RMS norm that is left to the next product
  // Of the widest layer.
  OwnedTensor qkv_;          // [T, own qkv_size, and q_size of a gate] act
  OwnedTensor q_;            // [T, own q_size] act
  OwnedTensor attended_;     // [T, q_size] act, shared
  OwnedTensor up_;           // [T, own intermediate] act, of layers without a gate, or gate and up
  OwnedTensor shared_gate_;  // [T, 1] f32, of a shared expert
  OwnedTensor activated_;    // [T, widest intermediate] act, shared
  OwnedTensor last_;         // [max_logits_rows, H] res
  OwnedTensor last_normed_;  // [max_logits_rows, H] act, with has_layer_norm
  // Of RunBeside.
  OwnedTensor zeros_;         // [T, H] res
  OwnedTensor sum_, mixed_;   // [T, H] res, shared
  OwnedTensor router_input_;  // [T, H] act
  // With several ranks.
  OwnedTensor branch_;       // [T, H] act, shared: what a post_norm reads
  OwnedTensor projections_;  // [T, q_size + kv_size] act, shared: what their norms read
  OwnedTensor projection_;   // [T, q_size] act: one of them, normed
  OwnedTensor all_logits_;   // [max_logits_rows, V] f32, shared
};

}  // namespace tandem
