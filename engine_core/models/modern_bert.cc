// ModernBERT: an encoder with rotary positions, norms before each branch and a gated MLP; layers
// with a window have a RoPE of their own. Source: Warner et al. 2024; HF's ModernBertModel.

#include <utility>

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadModernBertLayer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const HeadShare own = context.heads();
  const Slice own_inner = context.share.Of(inner);
  // Its rows of input, and those of gate.
  const auto input = [&](Slice rows) {
    return StoredMatrix{
        .name = place.prefix + ".mlp.Wi", .rows = 2 * inner, .columns = hidden, .row_slice = rows};
  };
  const auto load_norm = [&](const char* name) {
    const std::string norm = place.prefix + name;
    return LoadLayerNorm(context, norm, context.weights.Has(norm + ".bias"));
  };
  const Slice qkv[] = {own.q_rows(), own.kv_rows().Shifted(hidden),
                       own.kv_rows().Shifted(2 * hidden)};
  const StoredMatrix up[] = {input(own_inner), input(own_inner.Shifted(inner))};
  LlamaLayer layer;
  // The first layer takes the embeddings, which are normed.
  if (place.idx > 0) {
    ASSIGN_OR_RETURN(layer.input_norm, load_norm(".attn_norm"));
  }
  ASSIGN_OR_RETURN(layer.attention.qkv,
                   LoadMergedQkv(context, place.prefix + ".attn.Wqkv", config.attention_bias, qkv));
  ASSIGN_OR_RETURN(layer.attention.out, LoadRows(context, place.prefix + ".attn.Wo", hidden, hidden,
                                                 config.attention_bias));
  layer.attention.options = AttentionOptionsOf(config, place.idx);
  layer.attention.use_local_rope = config.WindowOf(place.idx) > 0;
  ASSIGN_OR_RETURN(layer.post_attention_norm, load_norm(".mlp_norm"));
  ASSIGN_OR_RETURN(layer.mlp.up, LoadLinear(context, up, {.has_bias = config.mlp_bias}));
  ASSIGN_OR_RETURN(layer.mlp.down,
                   LoadRows(context, place.prefix + ".mlp.Wo", hidden, inner, config.mlp_bias));
  layer.mlp.activation = Activation::kErfGeluAndMul;
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadModernBert(const LoadContext& context) {
  if (context.config.hidden_act != "gelu") {
    return InvalidArgumentError("hidden_activation " + context.config.hidden_act + " of " +
                                context.config.architecture + " must be gelu");
  }
  // Embedders are saved without the prefix.
  const std::string prefix =
      context.weights.Has("model.embeddings.tok_embeddings.weight") ? "model." : "";
  DecoderOptions options;
  options.embedding = prefix + "embeddings.tok_embeddings";
  options.embedding_norm = prefix + "embeddings.norm";
  options.has_embedding_norm_bias = context.weights.Has(options.embedding_norm + ".bias");
  options.layers = prefix + "layers";
  options.final_norm = prefix + "final_norm";
  options.has_layer_norm = true;
  options.has_norm_bias = context.weights.Has(options.final_norm + ".bias");
  options.local_rope = context.config.local_rope;
  return LoadLlamaLike(context, std::move(options), LoadModernBertLayer);
}

}  // namespace tandem
