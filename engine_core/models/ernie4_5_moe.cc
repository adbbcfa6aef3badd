// ERNIE 4.5: rotation of neighbours; dense, or in some layers a mixture chosen by softmax with a
// bias, and shared experts.
// Source: Baidu 2025; HF's Ernie4_5ForCausalLM and Ernie4_5_MoeForCausalLM.

#include "engine_core/models/llama.h"
#include "engine_core/models/moe.h"

namespace tandem {

StatusOr<std::unique_ptr<Stage>> LoadErnie45(const LoadContext& context) {
  DecoderOptions options;
  options.is_rope_interleaved = true;
  return LoadLlamaLike(context, std::move(options), LoadLlamaLayer);
}

StatusOr<std::unique_ptr<Stage>> LoadErnie45Moe(const LoadContext& context) {
  const ModelConfig& config = context.config;
  DecoderOptions options;
  options.is_rope_interleaved = true;
  return LoadMoeLike(context, {.names = {.shared = "shared_experts",
                                         .router_bias = "moe_statics.e_score_correction_bias"},
                               .shape = MixtureShape(config, {.renormalize = true}),
                               .load_attention = LoadAttention,
                               .options = std::move(options)});
}

}  // namespace tandem
