// GLM-4: norms before and after both halves of a layer, biases on q, k and v, rotation of
// neighbours in the first half of each head, gate and up in one matrix.
// Source: GLM Team 2024; HF's Glm4ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadGlm4Layer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const int64_t inner = config.intermediate_size;
  const Slice slice = context.share.Of(inner);
  const auto gate_up_rows = [&](Slice rows) {
    return StoredMatrix{.name = place.prefix + ".mlp.gate_up_proj",
                        .rows = 2 * inner,
                        .columns = config.hidden_size,
                        .row_slice = rows};
  };
  const StoredMatrix gate_up[] = {gate_up_rows(slice), gate_up_rows(slice.Shifted(inner))};
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLlamaNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, place, {.qkv = config.attention_bias}));
  ASSIGN_OR_RETURN(layer.attention.post_norm,
                   LoadRmsNorm(context, place.prefix + ".post_self_attn_layernorm"));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place, gate_up));
  ASSIGN_OR_RETURN(layer.mlp.post_norm, LoadRmsNorm(context, place.prefix + ".post_mlp_layernorm"));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadGlm4(const LoadContext& context) {
  DecoderOptions options;
  options.is_rope_interleaved = true;
  return LoadLlamaLike(context, std::move(options), LoadGlm4Layer);
}

}  // namespace tandem
