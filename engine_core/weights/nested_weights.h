#pragma once

// The text model's tensors of a checkpoint that has other models beside it, by the names that they
// have in a checkpoint of their own: "model.layers.0..." stands there as
// "language_model.model.layers.0..." or, as transformers 5 writes it,
// "model.language_model.layers.0...".
// Thread, failure: as Weights. Owns the checkpoint's.

#include <memory>

#include "engine_core/weights/safetensors.h"

namespace tandem {

// `weights` itself where its names are already those.
std::unique_ptr<Weights> TextWeights(std::unique_ptr<Weights> weights);

}  // namespace tandem
