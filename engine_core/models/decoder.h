#pragma once

// What the layers of a stage run on: the hidden states of the step, the buffers that all layers
// share, the embedding before the first layer and the head after the last one. A layer calls Norm,
// Attend, RunMlp and RunMixture in the order of its architecture.
// Thread: engine loop. Owns: weights of embedding and head, activations; borrows the backend.
// Shapes: T tokens, H hidden, V vocabulary; sizes of heads and of the MLP are the rank's own
// (rank_share.h). "act" and "res" are the backend's activation and
// residual types.

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine_core/models/expert_mixer.h"
#include "engine_core/models/layers.h"

namespace tandem {

// What an architecture does differently around its layers.
struct DecoderOptions {
  std::string embedding = "model.embed_tokens";
  std::string positions;  // a table of learned positions, added to the embedding; empty: none
  std::string layers = "model.layers";
  std::string final_norm = "model.norm";
  bool has_layer_norm = false;  // the final norm is a LayerNorm
  float embedding_scale = 1;
  float norm_offset = 0;  // added to the final norm's weight
  float logits_soft_cap = 0;
  std::optional<RopeConfig> local_rope = {};
  std::optional<MoeShape> mixture = {};  // for layers that call RunMixture
};

// Rows of a step that come from the host instead of the embedding table.
struct EmbeddedRows {
  int64_t first = 0;
  Tensor values;  // [n, H] f32, staging memory (Device::AllocateStaging)
};

class Decoder {
 public:
  // With the embedding if context.stage is the first stage, with the head if it is the last.
  static StatusOr<Decoder> Load(const LoadContext& context, DecoderOptions options);

  // Starts a step: residual = the embeddings of the tokens at those positions ([T] i32 each), or
  // the rows given in their place.
  void Embed(const Tensor& token_ids, const Tensor& positions,
             std::span<const EmbeddedRows> embedded);
  // Starts a step: residual = hidden, which the step overwrites.  [T, H] res.
  void Continue(const Tensor& hidden);

  // normed = the norm of the residual.
  void Norm(const NormLayer& norm);
  // residual += out(attention(qkv(normed))), its post_norm before the sum.
  void Attend(const AttentionLayer& layer, const LayerKv& kv, const AttentionPlan& plan);
  // residual += down(activation(up(normed))), its post_norm before the sum.
  void RunMlp(const MlpLayer& layer);
  // residual += the mixture of normed.
  void RunMixture(const MoeLayer& layer);

  // The hidden states of the step.  [T, H] res.
  const Tensor& residual() const { return residual_; }
  // logits = head(final_norm(residual[rows])).
  void Logits(const Tensor& logits, const Tensor& rows);

 private:
  struct RopeTensors {
    OwnedTensor cos, sin;  // empty views: the model has no RoPE
  };

  Decoder(const LoadContext& context, DecoderOptions options)
      : device_(&context.backend.device()),
        ops_(&context.backend.ops()),
        options_(std::move(options)) {}
  Status LoadEmbedding(const LoadContext& context);
  Status LoadHead(const LoadContext& context);
  StatusOr<RopeTensors> LoadRope(const LoadContext& context, const RopeConfig& rope) const;
  Status AllocateActivations(const LoadContext& context);

  Tensor RowsOf(const OwnedTensor& buffer) const { return buffer.view().Rows(0, num_tokens_); }
  // normed_, computed if it is still to be.
  Tensor Normed();
  // out = layer(normed), with the norm on the way in when it is still to be done.
  void MultiplyNormed(const Tensor& out, const LinearLayer& layer,
                      LinearEpilogue epilogue = LinearEpilogue::kStore);
  // residual += norm(out(x)); the norm may be empty.
  void AddBranch(const Tensor& x, const LinearLayer& out, const NormLayer& post_norm);

  Device* device_;
  Ops* ops_;
  DecoderOptions options_;
  float norm_epsilon_ = 0;
  std::unique_ptr<PackedMatrix> embedding_;       // [V, H]; the first stage, or a tied head
  std::unique_ptr<PackedMatrix> position_table_;  // [max positions, H]; null: none
  std::unique_ptr<PackedMatrix> lm_head_;         // [V, H]; null: tied to the embedding
  NormLayer final_norm_;                          // of the last stage
  RopeTensors rope_, local_rope_;
  std::optional<ExpertMixer> mixer_;

  int64_t num_tokens_ = 0;   // of this step
  Tensor residual_;          // [T, H] res, of this step
  OwnedTensor embedded_;     // [T, H] res, of the first stage
  OwnedTensor positions_;    // [T, H] res, with position_table_
  OwnedTensor normed_;       // [T, H] act, not filled while pending_norm_ is not empty
  Tensor pending_norm_;      // [H] weight of an RMS norm that is left to the next product
  OwnedTensor qkv_;          // [T, qkv_size] act
  OwnedTensor q_;            // [T, q_size] act
  OwnedTensor attended_;     // [T, q_size] act
  OwnedTensor up_;           // [T, intermediate] act, of layers without a gate
  OwnedTensor activated_;    // [T, intermediate] act
  OwnedTensor last_;         // [max_logits_rows, H] res
  OwnedTensor last_normed_;  // [max_logits_rows, H] act, with has_layer_norm
};

}  // namespace tandem
