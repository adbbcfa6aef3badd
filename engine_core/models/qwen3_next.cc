// Qwen3-Next and Qwen3.5: in most layers the gated delta rule in the place of attention, in the
// others attention whose output is gated; norms whose weights are stored less 1; experts with a
// gated shared one, or an MLP. Of models that also see, the text part.
// Source: Qwen 2025; HF's Qwen3NextForCausalLM, Qwen3_5ForCausalLM and Qwen3_5MoeForCausalLM.

#include <utility>
#include <vector>

#include "engine_core/models/mixed_layer.h"
#include "engine_core/models/moe.h"

namespace tandem {
namespace {

// q_proj has q and the gate of each head one after the other.
StatusOr<AttentionLayer> LoadGatedAttention(const LoadContext& context, const LayerPlace& place) {
  const int64_t head_dim = context.config.head_dim;
  const HeadShare all = HeadsOf(context.config), mine = context.heads();
  const std::string prefix = place.prefix + ".self_attn";
  const auto of_head = [&](int64_t head, int64_t first) {
    return StoredMatrix{.name = prefix + ".q_proj",
                        .rows = 2 * all.q_size(),
                        .columns = context.config.hidden_size,
                        .row_slice = Slice{2 * head * head_dim + first, head_dim}};
  };
  const std::array<StoredMatrix, 3> plain = QkvBlocks(context, place);
  std::vector<StoredMatrix> blocks;
  for (int64_t h = mine.heads.begin; h < mine.heads.end(); ++h) blocks.push_back(of_head(h, 0));
  blocks.push_back(plain[1]);
  blocks.push_back(plain[2]);
  for (int64_t h = mine.heads.begin; h < mine.heads.end(); ++h) {
    blocks.push_back(of_head(h, head_dim));
  }
  AttentionLayer layer;
  layer.has_gate = true;
  ASSIGN_OR_RETURN(layer.qkv, LoadLinear(context, blocks));
  ASSIGN_OR_RETURN(layer.out, LoadOutProjection(context, place, /*has_bias=*/false));
  ASSIGN_OR_RETURN(layer.q_norm, LoadVector(context, prefix + ".q_norm.weight", head_dim, 1));
  ASSIGN_OR_RETURN(layer.k_norm, LoadVector(context, prefix + ".k_norm.weight", head_dim, 1));
  layer.options = AttentionOptionsOf(context.config, place.idx);
  return layer;
}

StatusOr<std::unique_ptr<Layer>> LoadLayer(const LoadContext& context, const MoeFamily& family,
                                           const LayerPlace& place) {
  auto layer = std::make_unique<MixedLayer>();
  ASSIGN_OR_RETURN(layer->input_norm, LoadRmsNorm(context, place.prefix + ".input_layernorm", 1));
  ASSIGN_OR_RETURN(layer->post_attention_norm,
                   LoadRmsNorm(context, place.prefix + ".post_attention_layernorm", 1));
  if (context.config.recurrent.HasState(place.idx)) {
    ASSIGN_OR_RETURN(layer->mixer, LoadRecurrentLayer(context, place.prefix + ".linear_attn"));
  } else {
    ASSIGN_OR_RETURN(layer->mixer, LoadGatedAttention(context, place));
  }
  if (context.config.IsMixture(place.idx)) {
    ASSIGN_OR_RETURN(layer->mlp, LoadMoe(context, place, family.names, family.shape));
  } else {
    ASSIGN_OR_RETURN(layer->mlp, LoadGatedMlp(context, place));
  }
  return std::unique_ptr<Layer>(std::move(layer));
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadQwen3Next(const LoadContext& context) {
  const ModelConfig& config = context.config;
  if (!config.attn_output_gate || config.attention_bias) {
    return UnimplementedError("attn_output_gate of " + config.architecture +
                              " must be true and attention_bias false");
  }
  const MoeFamily family = {
      .names = {.shared = "shared_expert", .shared_gate = "shared_expert_gate"},
      .shape = MixtureShape(config, {.renormalize = config.norm_topk_prob}),
      .load_attention = nullptr};
  DecoderOptions options;
  options.norm_offset = 1;
  if (!config.mixture_layers.empty()) options.mixture = family.shape;
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) { return LoadLayer(context, family, place); });
}

}  // namespace tandem
