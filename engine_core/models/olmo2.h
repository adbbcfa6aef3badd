#pragma once

// OLMo 2: Llama's layer with its norms after attention and MLP instead of before them, and norms
// over the whole projections of q and k.
// Thread, ownership: as Model. Source: OLMo Team 2024; HF's Olmo2ForCausalLM.

#include "engine_core/models/llama.h"

namespace tandem {

StatusOr<LlamaLayer> LoadOlmo2Layer(const LoadContext& context, const LayerPlace& place);

}  // namespace tandem
