#pragma once

// Which keys each token of latent attention attends to (DeepSeek-V3.2): an index of small heads
// scores all keys before it,
//   score(s) = sum over heads h of w_h max(0, q_h . k_s) / sqrt(dim heads),
// with q from the latent of the queries, w and the one key k from the hidden state; the best
// num_keys are attended to. The key lies in the cache after the token's latent. Layers may use the
// choice of the layer before (GLM-5). Each rank computes all of it.
// Thread: engine loop. Owns: the buffers of a step, and the choice, from one layer to the next.
// Shapes: T tokens, H hidden. Sources: DeepSeek-AI 2025 (DeepSeek-V3.2); HF's
// DeepseekV32ForCausalLM and GlmMoeDsaForCausalLM.

#include <string>

#include "engine_core/models/layers.h"

namespace tandem {

struct KeyIndexLayer {
  LinearLayer down;                 // [dim + heads, H]: the key, then w
  OwnedTensor k_norm, k_norm_bias;  // [dim], a LayerNorm of the key
  LinearLayer q;                    // [heads * dim, q_rank]
};

// Of <prefix>.wk and so on.
StatusOr<KeyIndexLayer> LoadKeyIndexLayer(const LoadContext& context, const std::string& prefix);

class KeyIndex {
 public:
  static StatusOr<KeyIndex> Create(const LoadContext& context);

  // Room for what layer.down makes of a step.  [T, dim + heads] act.
  Tensor Down(int64_t num_tokens) const { return down_.view().Rows(0, num_tokens); }
  // The keys from it, normed and rotated, for LatentRope::index_key.  [T, dim] act.
  // cos, sin: as in LatentRope.
  Tensor Key(const KeyIndexLayer& layer, const Tensor& cos, const Tensor& sin, const LayerKv& kv,
             const AttentionPlan& plan);
  // chosen() from Down and the normed latents of the queries [T, q_rank] act, once the keys are in
  // the cache.
  void Choose(const KeyIndexLayer& layer, const Tensor& q_latent, const Tensor& cos,
              const Tensor& sin, const LayerKv& kv, const AttentionPlan& plan);
  // [T, K] i32, as of Ops::SelectKeys; K is num_keys, or the longest request if that is less.
  Tensor chosen(int64_t num_tokens) const { return chosen_.view().Rows(0, num_tokens); }

 private:
  explicit KeyIndex(const LoadContext& context);
  // out = the heads of x [T, heads * dim] act, rotated.
  void Rotate(const Tensor& out, const Tensor& x, const Tensor& cos, const Tensor& sin,
              const LayerKv& kv, const AttentionPlan& plan);

  Ops* ops_;
  KeyIndexConfig shape_;
  int rotary_dim_;
  OwnedTensor down_;
  OwnedTensor normed_, key_;       // [T, dim] act
  OwnedTensor queries_, rotated_;  // [T, heads * dim] act
  OwnedTensor chosen_;
};

}  // namespace tandem
