#pragma once

// What the models of Granite's family share: multipliers of embeddings, of what layers add, of
// scores and of logits. Thread: any; values.

#include "engine_core/models/decoder.h"

namespace tandem {

// The decoder's part of the config's multipliers.
DecoderOptions GraniteOptions(const ModelConfig& config);

// Attention whose scores have the config's multiplier.
StatusOr<AttentionLayer> LoadGraniteAttention(const LoadContext& context, const LayerPlace& place);

}  // namespace tandem
