#pragma once

// The numbers by which a checkpoint divides a layer's keys and values before they become float8.
// Thread: the loader's. Failure: UNIMPLEMENTED for scales of each head, INVALID_ARGUMENT for one
// that is not above 0.

#include <string>

#include "common/status.h"
#include "engine_core/models/load_context.h"

namespace tandem {

struct KvScales {
  float k = 1, v = 1;
};

// Of the layer at `prefix` ("model.layers.0"); 1 where the checkpoint has none.
StatusOr<KvScales> LoadKvScales(const LoadContext& context, const std::string& prefix);

}  // namespace tandem
