// LFM2: short convolutions in the place of attention in most layers; dense, or with a mixture
// chosen by sigmoids after the first layers. Source: Liquid AI 2025; HF's Lfm2ForCausalLM and
// Lfm2MoeForCausalLM.

#include <utility>

#include "engine_core/models/mixed_layer.h"
#include "engine_core/models/moe.h"

namespace tandem {
namespace {

StatusOr<AttentionLayer> LoadLfm2Attention(const LoadContext& context, const LayerPlace& place) {
  const int64_t head_dim = context.config.head_dim;
  const std::string prefix = place.prefix + ".self_attn";
  const StoredMatrix out[] = {{.name = prefix + ".out_proj",
                               .rows = context.config.hidden_size,
                               .columns = HeadsOf(context.config).q_size(),
                               .row_slice = context.share.Of(context.config.hidden_size)}};
  AttentionLayer layer;
  ASSIGN_OR_RETURN(layer.qkv, LoadLinear(context, QkvBlocks(context, place)));
  ASSIGN_OR_RETURN(layer.out, LoadLinear(context, out));
  ASSIGN_OR_RETURN(layer.q_norm, LoadVector(context, prefix + ".q_layernorm.weight", head_dim));
  ASSIGN_OR_RETURN(layer.k_norm, LoadVector(context, prefix + ".k_layernorm.weight", head_dim));
  layer.options = AttentionOptionsOf(context.config, place.idx);
  return layer;
}

// w1 is the gate, w3 up and w2 down.
StatusOr<MlpLayer> LoadLfm2Mlp(const LoadContext& context, const LayerPlace& place) {
  const int64_t inner = context.config.intermediate_size, hidden = context.config.hidden_size;
  const auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
    return StoredMatrix{.name = place.prefix + ".feed_forward." + name,
                        .rows = rows,
                        .columns = columns,
                        .row_slice = context.share.Of(rows)};
  };
  const StoredMatrix gate_up[] = {matrix("w1", inner, hidden), matrix("w3", inner, hidden)};
  const StoredMatrix down[] = {matrix("w2", hidden, inner)};
  MlpLayer layer;
  ASSIGN_OR_RETURN(layer.up, LoadLinear(context, gate_up, {.is_gated = true}));
  ASSIGN_OR_RETURN(layer.down, LoadLinear(context, down));
  return layer;
}

MoeShape ShapeOf(const ModelConfig& config) {
  return MixtureShape(config, GroupedSigmoids(config));
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadLfm2(const LoadContext& context) {
  const MoeNames names = {.block = "feed_forward",
                          .gate = "w1",
                          .up = "w3",
                          .down = "w2",
                          .router_bias = "expert_bias"};
  DecoderOptions options;
  if (context.config.num_experts > 0) options.mixture = ShapeOf(context.config);
  options.final_norm = "model.embedding_norm";
  return Stage::Load(
      context, std::move(options),
      [&](const LayerPlace& place) -> StatusOr<std::unique_ptr<Layer>> {
        auto layer = std::make_unique<MixedLayer>();
        ASSIGN_OR_RETURN(layer->input_norm, LoadRmsNorm(context, place.prefix + ".operator_norm"));
        ASSIGN_OR_RETURN(layer->post_attention_norm,
                         LoadRmsNorm(context, place.prefix + ".ffn_norm"));
        if (context.config.recurrent.HasState(place.idx)) {
          ASSIGN_OR_RETURN(layer->mixer, LoadRecurrentLayer(context, place.prefix + ".conv"));
        } else {
          ASSIGN_OR_RETURN(layer->mixer, LoadLfm2Attention(context, place));
        }
        if (context.config.IsMixture(place.idx)) {
          ASSIGN_OR_RETURN(layer->mlp, LoadMoe(context, place, names, ShapeOf(context.config)));
        } else {
          ASSIGN_OR_RETURN(layer->mlp, LoadLfm2Mlp(context, place));
        }
        return std::unique_ptr<Layer>(std::move(layer));
      });
}

}  // namespace tandem
