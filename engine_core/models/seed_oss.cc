// Seed-OSS: Llama's layer with biases on q, k and v, and on the output where the config says so.
// Source: ByteDance Seed 2025; HF's SeedOssForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadSeedOssLayer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLlamaNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention,
                   LoadAttention(context, place,
                                 {.qkv = config.attention_bias, .out = config.attention_out_bias}));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadSeedOss(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadSeedOssLayer);
}

}  // namespace tandem
