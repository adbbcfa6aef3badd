#pragma once

// Requests that an engine core aborts because it ends carry this stop reason. For one that another
// engine could continue, a frontend takes it as the engine's death.

#include <string_view>

namespace tandem::wire {

inline constexpr std::string_view kEngineEnds = "engine_shutdown";

}  // namespace tandem::wire
