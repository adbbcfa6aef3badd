#pragma once

// The utility methods that frontends call: a table of names and functions. Thread: engine loop.

#include <optional>

#include "common/status.h"
#include "engine_core/engine_core.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// The packed result (empty: nil), or an error. nullopt: the engine replies later. UNIMPLEMENTED for
// methods that are not in the table.
std::optional<StatusOr<wire::RawValue>> CallUtility(const wire::UtilityRequest& call,
                                                    EngineCore* engine);

}  // namespace tandem
