#pragma once

// A mixture of experts in place of a layer's MLP:
//   x += sum over the chosen experts e, by rising id, of weight_e * mlp_e(norm(x))
// and the decoder whose layers have one. Router: a linear layer, Backend::RouteTopK on its float32
// output. What a token gets is a function of that token alone.
// Thread: engine loop. Owns: packed experts and the buffers of a step, made when it is loaded.
// Shapes: T tokens, H hidden, E experts, K of them per token, I the experts' inner size.
// Source: Jiang et al. 2024 (Mixtral); HF's MixtralForCausalLM and Qwen3MoeForCausalLM.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine_core/models/llama.h"

namespace tandem {

struct MoeShape {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;
  bool renormalize = false;  // the chosen experts' weights sum to 1
};

struct MoeLayer {
  LinearLayer router;             // [E, H]
  std::vector<MlpLayer> experts;  // E
};

// How a family names its parts below a layer: "<block>.gate", "<block>.experts.<i>.<up>".
struct MoeNames {
  std::string block, gate, up, down;
};

// Each expert by itself as in `names`, or all in one tensor as transformers 5 holds them
// ("mlp.experts.gate_up_proj"). `prefix`: "model.layers.<i>".
StatusOr<MoeLayer> LoadMoe(const LoadContext& context, const std::string& prefix,
                           const MoeNames& names, const MoeShape& shape);

// The buffers that all mixtures of a model share.
class ExpertMixer {
 public:
  static StatusOr<ExpertMixer> Create(const LoadContext& context, const MoeShape& shape);

  // residual += the mixture of normed.  residual: [T, H] res; normed: [T, H] act.
  void Run(const MoeLayer& layer, const Tensor& residual, const Tensor& normed);

 private:
  ExpertMixer(Backend* backend, const MoeShape& shape) : backend_(backend), shape_(shape) {}
  void Route(const MoeLayer& layer, const Tensor& normed);
  void GroupByExpert(int64_t num_tokens);

  Backend* backend_;
  MoeShape shape_;
  OwnedTensor logits_;   // [T, E] f32
  OwnedTensor ids_;      // [T, K] i32
  OwnedTensor weights_;  // [T, K] f32

  // A pair is a token and one of its experts; sorted by expert, then token.
  OwnedTensor pair_tokens_;     // [T * K] i32
  OwnedTensor pair_weights_;    // [T * K] f32
  OwnedTensor pair_rows_;       // [T * K, H] act: what goes into the experts, then what comes out
  OwnedTensor pair_activated_;  // [T * K, I] act

  // The same on the host, where they are sorted.
  std::vector<int32_t> host_ids_, host_tokens_;
  std::vector<float> host_weights_, host_pair_weights_;
  std::vector<int64_t> expert_begin_;  // [E + 1] first pair of each expert
  std::vector<int64_t> next_pair_;     // [E]
};

struct MoeDecoderLayer {
  LlamaLayer dense;             // its mlp is empty where there is a mixture
  std::optional<MoeLayer> moe;  // else a dense layer
};

std::unique_ptr<Model> MakeMoeModel(Decoder decoder, ExpertMixer mixer,
                                    std::vector<MoeDecoderLayer> layers);

}  // namespace tandem
