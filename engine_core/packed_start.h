#pragma once

// The flags of an engine whose model is a folder of packed matrices
// (engine_core/weights/packed_file.h). Thread: main. Failure: INVALID_ARGUMENT for a flag that asks
// for something else than what was packed.

#include "common/status.h"
#include "engine_core/flags/engine_config.h"

namespace tandem {

// Where flags say auto, they become what the model was packed for. Other models: nothing happens.
Status FollowPackedFile(EngineConfig* config);

}  // namespace tandem
