// GLM-4: biases on q, k and v, rotation of neighbours in the first half of each head, gate and up
// in one matrix. The models of 2024 have Llama's norms, those of 2025 norms before and after both
// halves of a layer.
// Source: GLM Team 2024; HF's GlmForCausalLM and Glm4ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadGlmLayer(const LoadContext& context, const LayerPlace& place) {
  const std::string mlp = place.prefix + ".mlp";
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLlamaNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention,
                   LoadAttention(context, place, {.qkv = context.config.attention_bias}));
  ASSIGN_OR_RETURN(layer.mlp, LoadMergedMlp(context, mlp + ".gate_up_proj", mlp + ".down_proj",
                                            context.config.intermediate_size));
  return layer;
}

StatusOr<LlamaLayer> LoadGlm4Layer(const LoadContext& context, const LayerPlace& place) {
  ASSIGN_OR_RETURN(LlamaLayer layer, LoadGlmLayer(context, place));
  ASSIGN_OR_RETURN(layer.attention.post_norm,
                   LoadRmsNorm(context, place.prefix + ".post_self_attn_layernorm"));
  ASSIGN_OR_RETURN(layer.mlp.post_norm, LoadRmsNorm(context, place.prefix + ".post_mlp_layernorm"));
  return layer;
}

DecoderOptions Options() {
  DecoderOptions options;
  options.is_rope_interleaved = true;
  return options;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadGlm(const LoadContext& context) {
  return LoadLlamaLike(context, Options(), LoadGlmLayer);
}

StatusOr<std::unique_ptr<Stage>> LoadGlm4(const LoadContext& context) {
  return LoadLlamaLike(context, Options(), LoadGlm4Layer);
}

}  // namespace tandem
