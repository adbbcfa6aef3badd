#pragma once

// A mixture of experts:
//   residual += sum over the chosen experts e, in ascending order of id, of weight_e *
//   mlp_e(normed)
// Router: a linear layer, Ops::RouteTopK on its float32 output. A token's result depends on that
// token alone. A shared expert, which every token has, is an MLP beside it (Decoder::RunMixture).
// Several ranks share the work in one of two ways. Each has its rows of all experts: what goes into
// the down products is shared. Or each has some experts as a whole (expert parallelism): what comes
// out of them is shared. Each rank adds up its own columns, so no sum is cut in either way.
// Thread: engine loop. Owns: the buffers of a step, which all mixtures of a stage share, allocated
// when the model is loaded.
// Shapes: T tokens, H hidden, E experts, K of them per token, I the experts' inner size; "own"
// sizes are the rank's.

#include <memory>
#include <optional>
#include <vector>

#include "engine_core/models/adapter_weights.h"
#include "engine_core/models/layers.h"
#include "engine_core/models/rank_split.h"

namespace tandem {

struct MoeShape {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;
  RouteOptions routing = {};             // without the bias, which is a layer's
  int64_t shared_intermediate_size = 0;  // 0: no shared expert
  // What goes into the experts and comes out of them; 0: H. The shared expert has H in any case.
  int64_t latent_size = 0;
  float swiglu_limit = 0;     // > 0: ClampedSiluAndMul of that limit in place of the silu gate
  bool has_gate = true;       // else an expert is down(relu(up(x))^2), and so is the shared one
  bool has_gelu = false;      // in place of silu in the gate
  bool scales_input = false;  // the weight multiplies what goes into the expert, of which K is one
};

// H, or the latent size, in place of which "H" stands in the shapes of experts.
int64_t ExpertWidth(const ModelConfig& config, const MoeShape& shape);

struct MoeLayer {
  LinearLayer router;                  // [E, H], its bias where it has one
  LinearLayer to_latent, from_latent;  // [latent size, H] and [H, latent size]; null: no latent
  OwnedTensor router_bias;             // [E]; empty view: none
  OwnedTensor expert_scale;            // [E], of the experts' weights; empty view: none
  // [2 own I, H] each, or own experts: [2 I, H]; without a gate half of these
  std::unique_ptr<PackedExperts> gate_up;
  std::unique_ptr<PackedExperts> down;  // [own H, I] each, or own experts: [H, I]
  // [own experts, rows of the above]; empty views: none. Experts with biases have no adapters.
  OwnedTensor gate_up_bias, down_bias;
  std::vector<int> gate_up_sites, down_sites;  // by expert
  std::optional<MlpLayer> shared;
  LinearLayer shared_gate;  // [1, H]: the shared expert is multiplied by its sigmoid; null: none
};

// The experts of which the rank has something.
Slice OwnExperts(const LoadContext& context, const MoeShape& shape);

class ExpertMixer {
 public:
  static StatusOr<ExpertMixer> Create(const LoadContext& context, const MoeShape& shape);

  // residual += the mixture of normed, chosen by router_input; of several ranks each adds to its
  // columns.  residual: [T, H] res; the others: [T, H] act.
  void Run(const MoeLayer& layer, const Tensor& residual, const Tensor& normed,
           const Tensor& router_input, AdapterPicker* adapters);

 private:
  ExpertMixer(const LoadContext& context, const MoeShape& shape);
  // residual += the mixture of x, the residual and x as wide as experts are.
  void Mix(const MoeLayer& layer, const Tensor& residual, const Tensor& x,
           const Tensor& router_input, AdapterPicker* adapters);
  // The pairs of a step of num_tokens.
  ExpertPairs Pairs(int64_t num_tokens) const;
  // Those of the rank's experts, which count from 0 there.
  ExpertPairs OwnPairs(const ExpertPairs& pairs) const;
  // results[i, own columns or experts] = the mlp of pair i.
  void RunShares(const MoeLayer& layer, const ExpertPairs& pairs, const Tensor& results,
                 AdapterPicker* adapters);
  void RunOwnExperts(const MoeLayer& layer, const ExpertPairs& pairs, const Tensor& results,
                     AdapterPicker* adapters);
  // out = the activation of gate_up(x), of the rank's columns or experts.
  void Activate(const Tensor& out, const Tensor& x, const MoeLayer& layer, const ExpertPairs& pairs,
                AdapterPicker* adapters);
  // ExpertLinear, with what adapters add at those sites.
  void MultiplyExperts(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                       const Tensor& bias, std::span<const int> sites, const ExpertPairs& pairs,
                       LinearEpilogue epilogue, AdapterPicker* adapters);
  Ops* ops_;
  MoeShape shape_;
  RankSplit split_;
  bool splits_experts_;
  Slice experts_, inner_;  // the rank's
  OwnedTensor logits_;     // [T, E] f32
  OwnedTensor ids_;        // [T, K] i32
  OwnedTensor weights_;    // [T, K] f32
  // The parts of ExpertPairs.
  OwnedTensor pair_begin_, chosen_experts_, pair_tokens_, pairs_of_token_, pair_weights_;
  OwnedTensor rows_;        // [T * K, H] act: what goes into the experts, then what comes out
  OwnedTensor gate_up_;     // [T * K, 2 own I] act, with a swiglu_limit; [T * K, own I] if ungated
  OwnedTensor ones_;        // [T, K] f32, with scales_input
  OwnedTensor activated_;   // [T * K, I] act, shared unless experts are split
  OwnedTensor results_;     // [T * K, H] act, shared: what comes out where experts are split
  OwnedTensor own_chosen_;  // [E] i32, likewise
  // With a latent: what goes into the experts [T, latent size] act, shared, and sums that begin
  // with zeros [T, latent size] res.
  OwnedTensor latent_, zeros_, sums_;
};

}  // namespace tandem
