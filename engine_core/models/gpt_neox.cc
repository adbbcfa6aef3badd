// GPT-NeoX and Pythia: LayerNorms, biases, an MLP without a gate, which reads what attention reads
// in most sizes; q, k and v of a head are stored one after another.
// Source: Black et al. 2022; HF's GPTNeoXForCausalLM.

#include "engine_core/models/llama.h"
#include "engine_core/models/parallel.h"

namespace tandem {
namespace {

StatusOr<AttentionLayer> LoadGptNeoXAttention(const LoadContext& context, const LayerPlace& place) {
  const std::string prefix = place.prefix + ".attention";
  const bool has_bias = context.config.attention_bias;
  AttentionLayer layer;
  ASSIGN_OR_RETURN(layer.qkv, LoadMergedQkv(context, prefix + ".query_key_value", has_bias,
                                            RunsByKvHead(context)));
  ASSIGN_OR_RETURN(layer.out, LoadRows(context, prefix + ".dense", context.config.hidden_size,
                                       HeadsOf(context.config).q_size(), has_bias));
  layer.options = AttentionOptionsOf(context.config, place.idx);
  return layer;
}

StatusOr<LlamaLayer> LoadGptNeoXLayer(const LoadContext& context, const LayerPlace& place) {
  const std::string mlp = place.prefix + ".mlp";
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLayerNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention, LoadGptNeoXAttention(context, place));
  ASSIGN_OR_RETURN(layer.mlp, LoadPlainMlp(context, mlp + ".dense_h_to_4h", mlp + ".dense_4h_to_h",
                                           /*has_bias=*/true));
  return layer;
}

StatusOr<ParallelLayer> LoadParallelGptNeoXLayer(const LoadContext& context,
                                                 const LayerPlace& place) {
  ASSIGN_OR_RETURN(LlamaLayer apart, LoadGptNeoXLayer(context, place));
  ParallelLayer layer;
  layer.norm = std::move(apart.input_norm);
  layer.mlp_norm = std::move(apart.post_attention_norm);
  layer.attention = std::move(apart.attention);
  layer.mlp = std::move(apart.mlp);
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadGptNeoX(const LoadContext& context) {
  DecoderOptions options;
  options.embedding = "gpt_neox.embed_in";
  options.layers = "gpt_neox.layers";
  options.final_norm = "gpt_neox.final_layer_norm";
  options.has_layer_norm = true;
  options.head = "embed_out";
  return context.config.use_parallel_residual
             ? LoadParallelLike(context, std::move(options), LoadParallelGptNeoXLayer)
             : LoadLlamaLike(context, std::move(options), LoadGptNeoXLayer);
}

}  // namespace tandem
