#pragma once

// What the three Gemmas share: embeddings scaled by the root of the hidden size, norms that
// multiply by 1 + weight, a tanh GELU in the MLP, and a head tied to the embedding (the last two
// are in their rows of registry.cc).
// Thread, ownership: as Model. Source: Gemma Team 2024, 2024 (2), 2025 (3); HF's Gemma*ForCausalLM.

#include <string>

#include "engine_core/models/llama.h"

namespace tandem {

DecoderOptions GemmaOptions(const ModelConfig& config);
// Gemma 2 and 3: with a soft cap on logits where the config has one.
DecoderOptions Gemma2Options(const ModelConfig& config);

StatusOr<NormLayer> LoadGemmaNorm(const LoadContext& context, const std::string& name);

// Gemma 2 and 3: norms before and after both halves of a layer, soft caps where the config has
// them, the scale of query_pre_attn_scalar.
StatusOr<LlamaLayer> LoadGemma2Layer(const LoadContext& context, const LayerPlace& place);

}  // namespace tandem
