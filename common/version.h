#pragma once

// Our version, and the vLLM version whose wire and API we implement: routers and clients look at
// the latter. Constants; any thread.

namespace tandem {

inline constexpr const char* kVersion = "0.1.0";
inline constexpr const char* kVllmVersion = "0.33.0";

}  // namespace tandem
