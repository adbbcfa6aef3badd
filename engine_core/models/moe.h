#pragma once

// A mixture of experts in place of a layer's MLP:
//   x += sum over the chosen experts e, by rising id, of weight_e * mlp_e(norm(x))
// and the decoder whose layers have one. Router: a linear layer, Ops::RouteTopK on its float32
// output. What a token gets is a function of that token alone.
// Thread: engine loop. Owns: packed experts and the buffers of a step, made when it is loaded.
// Shapes: T tokens, H hidden, E experts, K of them per token, I the experts' inner size.
// Source: Jiang et al. 2024 (Mixtral); HF's MixtralForCausalLM and Qwen3MoeForCausalLM.

#include <memory>
#include <string>

#include "engine_core/models/llama.h"

namespace tandem {

struct MoeShape {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;
  bool renormalize = false;  // the chosen experts' weights sum to 1
};

// How a family names its parts below a layer: "<block>.gate", "<block>.experts.<i>.<up>".
struct MoeNames {
  std::string block, gate, up, down;
};

// What sets apart the families whose layers are Llama's but for the mixture.
struct MoeFamily {
  MoeNames names;
  MoeShape shape;
  StatusOr<AttentionLayer> (*load_attention)(const LoadContext&, const std::string& prefix);
};

// Loads the embedding, all layers, which are mixtures and have windows as the config says, and the
// head. Experts are stored one by one as in `names`, or all in one tensor as transformers 5 holds
// them ("mlp.experts.gate_up_proj").
StatusOr<std::unique_ptr<Model>> LoadMoeLike(const LoadContext& context, const MoeFamily& family);

}  // namespace tandem
