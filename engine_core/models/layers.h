#pragma once

// The pieces that decoder models are put together from: weights as loaded, and the Decoder with the
// embedding, the head and the buffers between layers.
// Thread: engine loop. Owns: packed weights and activations; borrows the backend.
// Shapes: T tokens, H hidden, V vocabulary. "act" and "res" as in kernels/ops.def.

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine_core/models/model.h"

namespace tandem {

struct LinearLayer {
  std::unique_ptr<PackedMatrix> weight;
  OwnedTensor bias;  // empty view: none
};

// One matrix of the checkpoint that becomes rows of a merged one.
struct RowBlock {
  std::string name;  // ".weight" and ".bias" follow it; not those of a stack
  int64_t rows = 0;
  // Where all experts' matrices are one tensor [stack_size, rows, columns]: which of them.
  int64_t stack_idx = 0;
  int64_t stack_size = 0;  // 0: a matrix of its own
};

// Packs the blocks, each [rows, columns], under one another; in context.formats.layers unless a
// format is given.
StatusOr<LinearLayer> LoadLinear(const LoadContext& context, std::span<const RowBlock> blocks,
                                 int64_t columns, bool has_bias);
StatusOr<LinearLayer> LoadLinear(const LoadContext& context, std::span<const RowBlock> blocks,
                                 int64_t columns, bool has_bias, WeightFormat format,
                                 bool is_gated = false);
// The blocks' biases, one after another.
StatusOr<OwnedTensor> LoadBias(const LoadContext& context, std::span<const RowBlock> blocks);
// A vector as float32, `offset` added to each number.
StatusOr<OwnedTensor> LoadVector(const LoadContext& context, const std::string& name, int64_t size,
                                 float offset = 0);

struct AttentionLayer {
  LinearLayer qkv;  // merged rows q, k, v
  LinearLayer out;
  OwnedTensor q_norm, k_norm;     // [head_dim]; empty view: none
  OwnedTensor q_projection_norm;  // [heads * head_dim]; empty view: none
  OwnedTensor k_projection_norm;  // [kv_heads * head_dim]
  OwnedTensor post_norm;          // [H], of what is added to the residual; empty: none
  bool use_local_rope = false;    // DecoderOptions::local_rope
  AttentionOptions options;
};

enum class Activation { kSiluAndMul, kGeluAndMul, kGelu };

struct MlpLayer {
  LinearLayer up;  // gated: rows gate, up; up alone for kGelu
  LinearLayer down;
  OwnedTensor post_norm;  // as AttentionLayer's
  Activation activation = Activation::kSiluAndMul;
};

// What an architecture does differently around its layers.
struct DecoderOptions {
  std::string embedding = "model.embed_tokens";
  std::string final_norm = "model.norm";
  bool has_layer_norm = false;  // the final norm has a bias and takes the mean away
  float embedding_scale = 1;
  float norm_offset = 0;  // added to the final norm's weight
  float logits_soft_cap = 0;
  std::optional<RopeConfig> local_rope;
};

// 1 / sqrt(dim)
float AttentionScale(double dim);

// HF's usual names below `prefix`: q_proj, k_proj, v_proj, o_proj; gate_proj, up_proj, down_proj.
std::array<RowBlock, 3> QkvBlocks(const ModelConfig& config, const std::string& prefix);
StatusOr<AttentionLayer> LoadAttention(const LoadContext& context, const std::string& prefix);
StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const std::string& prefix);
// The same with gate and up stored some other way.
StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const std::string& prefix,
                                std::span<const RowBlock> gate_up);

class Decoder {
 public:
  static StatusOr<Decoder> Load(const LoadContext& context, DecoderOptions options = {});

  // residual = the tokens' embeddings. Starts a step of token_ids.rows() tokens.
  void Embed(const Tensor& token_ids);
  // residual += x, [T, H].
  void Add(const Tensor& x);
  // normed = RmsNorm(residual); with a bias LayerNorm(residual); without a weight residual itself.
  void Norm(const Tensor& weight, const Tensor& bias = {});
  // residual += out(attention(qkv(normed))), its post_norm before the sum.
  void Attend(const AttentionLayer& layer, const LayerKv& kv, const AttentionPlan& plan);
  // residual += down(activation(up(normed))), its post_norm before the sum.
  void RunMlp(const MlpLayer& layer);
  // For layers that have ops of their own: the step's rows of both.
  Tensor residual() const { return residual_.view().Rows(0, num_tokens_); }
  Tensor normed();
  // logits = lm_head(final_norm(residual[rows])).
  void Logits(const Tensor& logits, const Tensor& rows);

 private:
  Decoder(const LoadContext& context, DecoderOptions options)
      : ops_(&context.backend.ops()), options_(std::move(options)) {}
  Status LoadWeights(const LoadContext& context);
  struct RopeTensors {
    OwnedTensor cos, sin;  // empty views: nothing is turned
  };
  StatusOr<RopeTensors> LoadRope(const LoadContext& context, const RopeConfig& rope) const;
  // out = layer(normed), with the norm on the way in when it is still to be done.
  void MultiplyNormed(const Tensor& out, const LinearLayer& layer,
                      LinearEpilogue epilogue = LinearEpilogue::kStore);
  // residual += norm(out(x)); the norm may be empty.
  void AddBranch(const Tensor& x, const LinearLayer& out, const Tensor& post_norm);
  Status AllocateActivations(const LoadContext& context);

  Ops* ops_;
  DecoderOptions options_;
  float norm_epsilon_ = 0;
  std::unique_ptr<PackedMatrix> embedding_;  // [V, H]
  std::unique_ptr<PackedMatrix> lm_head_;    // [V, H]; null: tied to the embedding
  OwnedTensor final_norm_, final_norm_bias_;
  RopeTensors rope_, local_rope_;

  int64_t num_tokens_ = 0;   // of this step
  OwnedTensor residual_;     // [T, H] res
  OwnedTensor normed_;       // [T, H] act, not filled while pending_norm_ is not empty
  Tensor pending_norm_;      // [H] weight of an RMS norm that is left to the next product
  OwnedTensor qkv_;          // [T, (heads + 2 kv_heads) * head_dim] act
  OwnedTensor q_;            // [T, heads * head_dim] act
  OwnedTensor attended_;     // [T, heads * head_dim] act
  OwnedTensor up_;           // [T, intermediate] act, of layers without a gate
  OwnedTensor activated_;    // [T, intermediate] act
  OwnedTensor last_;         // [max_logits_rows, H] res
  OwnedTensor last_normed_;  // [max_logits_rows, H] act, with has_layer_norm
};

}  // namespace tandem
