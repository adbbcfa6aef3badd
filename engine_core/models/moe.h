#pragma once

// Architectures whose layers are Llama's with a mixture of experts in place of some or all MLPs.
// Thread, ownership: as Model. Source: Jiang et al. 2024 (Mixtral); HF's MixtralForCausalLM and
// Qwen3MoeForCausalLM.

#include <memory>
#include <string>

#include "engine_core/models/stage.h"

namespace tandem {

// How a family names its parts below a layer: "<block>.gate", "<block>.experts.<i>.<up>".
struct MoeNames {
  std::string block, gate, up, down;
  std::string shared = {};       // "<block>.<shared>.gate_proj", the expert of every token
  std::string shared_gate = {};  // "<block>.<shared_gate>"; empty: there is none
  std::string router_bias = {};  // "<block>.<router_bias>"; empty: there is none
};

struct MoeFamily {
  MoeNames names;
  MoeShape shape;
  StatusOr<AttentionLayer> (*load_attention)(const LoadContext&, const LayerPlace&);
};

// One layer's mixture.
StatusOr<MoeLayer> LoadMoe(const LoadContext& context, const LayerPlace& place,
                           const MoeNames& names, const MoeShape& shape);

// The config chooses which layers are mixtures. Experts are stored one by one as in `names`, or all
// in one tensor as transformers 5 writes them ("mlp.experts.gate_up_proj").
StatusOr<std::unique_ptr<Stage>> LoadMoeLike(const LoadContext& context, const MoeFamily& family);

}  // namespace tandem
