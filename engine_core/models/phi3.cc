// Phi-3: Llama's layer with q, k, v and gate, up stored as one matrix each, a sliding window and,
// in some sizes, RoPE over the first dimensions of a head only. Source: Abdin et al. 2024; HF's
// Phi3ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

StatusOr<LlamaLayer> LoadPhi3Layer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const int64_t q_rows = config.num_heads * config.head_dim;
  const int64_t kv_rows = config.num_kv_heads * config.head_dim;
  const RowBlock qkv[] = {{place.prefix + ".self_attn.qkv_proj", q_rows + 2 * kv_rows}};
  const RowBlock out[] = {{place.prefix + ".self_attn.o_proj", config.hidden_size}};
  const RowBlock gate_up[] = {{place.prefix + ".mlp.gate_up_proj", 2 * config.intermediate_size}};
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLlamaNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention.qkv, LoadLinear(context, qkv, config.hidden_size));
  ASSIGN_OR_RETURN(layer.attention.out, LoadLinear(context, out, q_rows));
  layer.attention.options = AttentionOptionsOf(config, place.idx);
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, place, gate_up));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadPhi3(const LoadContext& context) {
  return LoadLlamaLike(context, {}, LoadPhi3Layer);
}

}  // namespace tandem
