// Phi-3: Llama's layer with q, k, v and gate, up stored as one matrix each, a sliding window and,
// in some sizes, RoPE over the first dimensions of a head only.
// Source: Abdin et al. 2024; HF's Phi3ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadPhi3Layer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const HeadShare all = HeadsOf(config), mine = context.heads();
  const int64_t inner = config.intermediate_size;
  const Slice inner_slice = context.share.Of(inner);
  const auto block = [&](const char* name, int64_t rows, Slice slice) {
    return StoredMatrix{.name = place.prefix + name,
                        .rows = rows,
                        .columns = config.hidden_size,
                        .row_slice = slice};
  };
  const char* const qkv_name = ".self_attn.qkv_proj";
  const StoredMatrix qkv[] = {
      block(qkv_name, all.qkv_size(), mine.q_rows()),
      block(qkv_name, all.qkv_size(), mine.kv_rows().Shifted(all.q_size())),
      block(qkv_name, all.qkv_size(), mine.kv_rows().Shifted(all.q_size() + all.kv_size()))};
  const StoredMatrix gate_up[] = {
      block(".mlp.gate_up_proj", 2 * inner, inner_slice),
      block(".mlp.gate_up_proj", 2 * inner, inner_slice.Shifted(inner))};
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLlamaNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention.qkv, LoadLinear(context, qkv));
  ASSIGN_OR_RETURN(layer.attention.out, LoadOutProjection(context, place, /*has_bias=*/false));
  layer.attention.options = AttentionOptionsOf(config, place.idx);
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place, gate_up));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadPhi3(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadPhi3Layer);
}

}  // namespace tandem
