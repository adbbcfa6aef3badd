#pragma once

// A text model's tensors by the names that they have in a checkpoint of it alone with its head:
// "model.layers.0...". Beside other models it stands as "language_model.model.layers.0..." or, as
// transformers 5 writes it, "model.language_model.layers.0..."; saved without its head, as
// embedders mostly are, as "layers.0...". Names of the other models stay as they are. Thread,
// failure: as Weights. Owns the checkpoint's.

#include <memory>
#include <string>
#include <string_view>

#include "engine_core/weights/safetensors.h"

namespace tandem {

// `weights` itself where its names are already those.
std::unique_ptr<Weights> TextWeights(std::unique_ptr<Weights> weights);

// The same of one name, in whichever of these ways it is spelled.
std::string TextName(std::string_view name);

}  // namespace tandem
