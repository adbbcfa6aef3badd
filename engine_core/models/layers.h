#pragma once

// The pieces that decoder models are put together from: weights as loaded, and the Decoder with the
// embedding, the head and the buffers between layers.
// Thread: engine loop. Owns: packed weights and activations; borrows the backend.
// Shapes: T tokens, H hidden, V vocabulary. "act" and "res" as in kernels/backend.h.

#include <array>
#include <memory>
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
  std::string name;  // ".weight" and ".bias" follow it
  int64_t rows = 0;
};

// Packs the blocks, each [rows, columns], under one another.
StatusOr<LinearLayer> LoadLinear(const LoadContext& context, std::span<const RowBlock> blocks,
                                 int64_t columns, bool has_bias);
// The blocks' biases, one after another.
StatusOr<OwnedTensor> LoadBias(const LoadContext& context, std::span<const RowBlock> blocks);
// A vector as float32.
StatusOr<OwnedTensor> LoadVector(const LoadContext& context, const std::string& name, int64_t size);

struct AttentionLayer {
  LinearLayer qkv;  // merged rows q, k, v
  LinearLayer out;
  OwnedTensor q_norm, k_norm;  // [head_dim]; empty view: none
  AttentionOptions options;
};

struct GatedMlpLayer {
  LinearLayer gate_up;  // merged rows gate, up
  LinearLayer down;
};

// 1 / sqrt(dim)
float AttentionScale(double dim);

// HF's usual names below `prefix`: q_proj, k_proj, v_proj, o_proj; gate_proj, up_proj, down_proj.
std::array<RowBlock, 3> QkvBlocks(const ModelConfig& config, const std::string& prefix);
StatusOr<AttentionLayer> LoadAttention(const LoadContext& context, const std::string& prefix);
StatusOr<GatedMlpLayer> LoadGatedMlp(const LoadContext& context, const std::string& prefix);
// The same with gate and up stored some other way.
StatusOr<GatedMlpLayer> LoadGatedMlp(const LoadContext& context, const std::string& prefix,
                                     std::span<const RowBlock> gate_up);

class Decoder {
 public:
  static StatusOr<Decoder> Load(const LoadContext& context);

  // residual = the tokens' embeddings. Starts a step of token_ids.rows() tokens.
  void Embed(const Tensor& token_ids);
  // normed = RmsNorm(residual).
  void Norm(const OwnedTensor& weight);
  // residual += out(attention(qkv(normed))).
  void Attend(const AttentionLayer& layer, const LayerKv& kv, const AttentionPlan& plan);
  // residual += down(silu(gate(normed)) * up(normed)).
  void RunMlp(const GatedMlpLayer& layer);
  // logits = lm_head(final_norm(residual[rows])).
  void Logits(const Tensor& logits, const Tensor& rows);

 private:
  explicit Decoder(const LoadContext& context) : backend_(&context.backend) {}
  Status LoadWeights(const LoadContext& context);
  Status LoadRope(const LoadContext& context);
  Status AllocateActivations(const LoadContext& context);

  Backend* backend_;
  float norm_epsilon_ = 0;
  std::unique_ptr<PackedMatrix> embedding_;  // [V, H]
  std::unique_ptr<PackedMatrix> lm_head_;    // [V, H]; null: tied to the embedding
  OwnedTensor final_norm_;
  OwnedTensor rope_cos_, rope_sin_;

  int64_t num_tokens_ = 0;   // of this step
  OwnedTensor residual_;     // [T, H] res
  OwnedTensor normed_;       // [T, H] act
  OwnedTensor qkv_;          // [T, (heads + 2 kv_heads) * head_dim] act
  OwnedTensor q_;            // [T, heads * head_dim] act
  OwnedTensor attended_;     // [T, heads * head_dim] act
  OwnedTensor gate_up_;      // [T, 2 * intermediate] act
  OwnedTensor activated_;    // [T, intermediate] act
  OwnedTensor last_;         // [max_logits_rows, H] res
  OwnedTensor last_normed_;  // [max_logits_rows, H] act
};

}  // namespace tandem
