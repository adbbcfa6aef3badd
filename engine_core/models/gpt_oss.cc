// gpt-oss: a window in every second layer, a score per head that takes its share of the softmax
// alone, and in every layer a mixture of experts with biases and a clamped gate, stored in MXFP4.
// Source: OpenAI 2025; HF's GptOssForCausalLM.

#include "engine_core/models/moe.h"

namespace tandem {
namespace {

StatusOr<AttentionLayer> LoadGptOssAttention(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(AttentionLayer layer, LoadAttention(context, place));
  ASSIGN_OR_RETURN(layer.sinks, LoadOfHeads(context, place.prefix + ".self_attn.sinks"));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadGptOss(const LoadContext& context) {
  const ModelConfig& config = context.config;
  // The softmax over the chosen logits alone.
  MoeShape shape = MixtureShape(config, {.renormalize = true});
  shape.swiglu_limit = static_cast<float>(config.swiglu_limit);
  return LoadMoeLike(context, {.names = {.router = "router"},
                               .shape = shape,
                               .load_attention = LoadGptOssAttention,
                               .layout = ExpertLayout::kTransposedPairs});
}

}  // namespace tandem
