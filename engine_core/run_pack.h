#pragma once

// `tandem-engine-core MODEL --pack-to OUT`: packs the model as a start with the same flags would,
// and writes it. Thread: main. Returns the exit status: 0, 1 where it cannot be written, 2 and 3 as
// for a start.

#include <string>

#include "engine_core/flags/engine_config.h"
#include "engine_core/flags/pack_flags.h"
#include "engine_core/startup_log.h"

namespace tandem {

// `tandem-engine-core OUT --verify-packed`. Returns 0, or 3 where the file is damaged, has no
// hashes, or is none.
int RunVerify(const std::string& folder, StartupLog* startup);

int RunPack(const EngineConfig& config, const PackConfig& pack, StartupLog* startup);

}  // namespace tandem
