#pragma once

// Multi-head latent attention in its absorbed form: a token's cache is one vector [c | pe] that all
// heads share, where c is a normed projection of the hidden state and pe carries the position. With
// the rows K_h (keys) and V_h (values) of kv_b_proj that belong to head h:
//   score = [q_nope K_h | rope(q_pe)] . [c | pe] scale,   out_h = V_h (sum of weight c)
// so neither keys nor values of a head are ever made. It is the attention of ops.def with one KV
// head, whose values are its keys.
// With an index (key_index.h) a token attends to the keys that it chooses by it.
// Ranks have some heads each; the latents and their cache are the same on all of them.
// Thread: engine loop. Owns: the buffers of a step, which all layers of a stage share.
// Shapes: T tokens, H hidden, own: the rank's heads.
// Source: DeepSeek-AI 2024 (DeepSeek-V2); HF's DeepseekV3ForCausalLM.

#include <memory>
#include <optional>
#include <vector>

#include "engine_core/models/adapter_weights.h"
#include "engine_core/models/key_index.h"
#include "engine_core/models/layers.h"

namespace tandem {

struct LatentLayer {
  // Rows q_a_proj, or without a latent of the queries the rank's rows of q_proj; then
  // kv_a_proj_with_mqa.
  LinearLayer down;
  OwnedTensor q_norm;                                 // [q_rank]; empty view: down has the queries
  LinearLayer q_up;                                   // [own heads * (nope_dim + pe_dim), q_rank]
  OwnedTensor latent_norm;                            // [kv_rank]
  std::vector<std::unique_ptr<PackedMatrix>> keys;    // of own heads: K_h^T [kv_rank, nope_dim]
  std::vector<std::unique_ptr<PackedMatrix>> values;  // V_h [value_dim, kv_rank]
  LinearLayer out;                                    // [own H, heads * value_dim]
  // Of a model with an index; without a value the layer uses the choice of the one before.
  std::optional<KeyIndexLayer> index;
};

StatusOr<LatentLayer> LoadLatentLayer(const LoadContext& context, const LayerPlace& place);

// 1 / sqrt(nope_dim + pe_dim), times what YaRN adds.
float LatentScale(const ModelConfig& config);

class LatentAttention {
 public:
  static StatusOr<LatentAttention> Create(const LoadContext& context);

  // Room for what layer.down makes of a step.  [T, .] act.
  Tensor Down(int64_t num_tokens) const { return down_.view().Rows(0, num_tokens); }
  // Room for what layer.index->down makes of a step.  REQUIRES: layer.index.  [T, .] act.
  Tensor IndexDown(int64_t num_tokens) const { return index_->Down(num_tokens); }
  // The heads' outputs from these, of which this writes the rank's columns.  [T, heads * value_dim]
  // act, shared. cos, sin: as in LatentRope.
  Tensor Run(const LatentLayer& layer, const Tensor& cos, const Tensor& sin, const LayerKv& kv,
             const AttentionPlan& plan, AdapterPicker* adapters);

 private:
  explicit LatentAttention(const LoadContext& context);
  // What the heads are made of: queries [T, own heads * (nope_dim + pe_dim)].
  Tensor Queries(const LatentLayer& layer, const Tensor& down, AdapterPicker* adapters);
  // q_latent_ = the normed latent of the queries.
  Tensor NormedQueryLatent(const LatentLayer& layer, const Tensor& down);

  Ops* ops_;
  LatentConfig shape_;
  Slice heads_;  // the rank's
  float norm_epsilon_;
  float scale_;
  OwnedTensor down_;  // [T, q_rank or own queries, + kv_rank + pe_dim] act
  std::optional<KeyIndex> index_;
  OwnedTensor q_latent_;  // [T, q_rank] act, normed for an adapter or the index
  OwnedTensor queries_;   // [T, own heads * (nope_dim + pe_dim)] act
  OwnedTensor absorbed_;  // [T, own heads * (kv_rank + pe_dim)] act
  OwnedTensor attended_;  // the same
  OwnedTensor values_;    // [T, heads * value_dim] act, shared
};

}  // namespace tandem
