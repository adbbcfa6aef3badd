#pragma once

// Qwen3: Llama's layer with an RMS norm over each head of q and k before RoPE.
// Thread, ownership: as Model. Source: Yang et al. 2025; HF's Qwen3ForCausalLM.

#include "engine_core/models/layers.h"

namespace tandem {

StatusOr<AttentionLayer> LoadQwen3Attention(const LoadContext& context, const LayerPlace& place);

}  // namespace tandem
