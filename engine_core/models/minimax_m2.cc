// MiniMax M2: norms over the whole projections of q and k, rotation of a part of each head, and in
// every layer a mixture chosen by sigmoids with a bias.
// Source: MiniMax 2025; HF's MiniMaxM2ForCausalLM.

#include <utility>

#include "engine_core/models/moe.h"

namespace tandem {

StatusOr<std::unique_ptr<Stage>> LoadMiniMaxM2(const LoadContext& context) {
  const ModelConfig& config = context.config;
  MoeNames names = MixtralNames();
  names.router_bias = "e_score_correction_bias";
  return LoadMoeLike(context, {.names = std::move(names),
                               .shape = MixtureShape(
                                   config, {.score = RouterScore::kSigmoid, .renormalize = true}),
                               .load_attention = LoadProjectionNormedAttention});
}

}  // namespace tandem
