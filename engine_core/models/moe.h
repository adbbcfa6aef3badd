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
  // An empty block: they stand in the layer itself.
  std::string block = "mlp", gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string shared = {};        // "<block>.<shared>.gate_proj", the expert of every token
  std::string shared_gate = {};   // "<block>.<shared_gate>"; empty: there is none
  std::string router = "gate";    // "<block>.<router>"
  std::string dense = "mlp";      // "<dense>.gate_proj", of layers that are no mixtures
  std::string router_bias = {};   // "<block>.<router_bias>"; empty: there is none
  std::string expert_scale = {};  // "<block>.<expert_scale>" [E]; empty: there is none
};

// Mixtral's names.
inline MoeNames MixtralNames() {
  return {.block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"};
}

// The sizes that the config has.
MoeShape MixtureShape(const ModelConfig& config, RouteOptions routing);

// Routing in the groups of the config, as DeepSeek-V3 has it: by sigmoids, a group for its best
// two.
RouteOptions GroupedSigmoids(const ModelConfig& config);

// How experts are stored: one by one as in MoeNames, or all in one tensor as transformers 5 writes
// them; or all in one tensor "<block>.experts.gate_up_proj" [E, H, 2 I], in which gate and up are
// halves (Llama 4) or take turns (gpt-oss, whose experts have biases and may be in MXFP4); or all
// in "<block>.input_linear.weight" [E, 2 I, H] and "<block>.output_linear.weight" (Granite).
enum class ExpertLayout { kNamed, kTransposedHalves, kTransposedPairs, kStacked };

struct MoeFamily {
  MoeNames names;
  MoeShape shape;
  StatusOr<AttentionLayer> (*load_attention)(const LoadContext&, const LayerPlace&);
  ExpertLayout layout = ExpertLayout::kNamed;
  DecoderOptions options = {};  // without `mixture`
};

// One layer's mixture.
StatusOr<MoeLayer> LoadMoe(const LoadContext& context, const LayerPlace& place,
                           const MoeNames& names, const MoeShape& shape,
                           ExpertLayout layout = ExpertLayout::kNamed);

// Granite's MLP <module>.{input_linear,output_linear}; in GGUF files gate, up and down are apart.
StatusOr<MlpLayer> LoadSharedMlp(const LoadContext& context, const std::string& module,
                                 int64_t inner);

// The config chooses which layers are mixtures.
StatusOr<std::unique_ptr<Stage>> LoadMoeLike(const LoadContext& context, const MoeFamily& family);

}  // namespace tandem
