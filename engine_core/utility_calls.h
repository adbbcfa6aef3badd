#pragma once

// The utility methods that frontends call, as a table: name, what it does. Thread: engine loop.

#include <optional>

#include "common/status.h"
#include "engine_core/engine_core.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// The packed result (empty: nil), or why there is none. nullopt: the engine answers later by
// itself. UNIMPLEMENTED for methods that are not in the table.
std::optional<StatusOr<wire::RawValue>> CallUtility(const wire::UtilityRequest& call,
                                                    EngineCore* engine);

}  // namespace tandem
