#pragma once

// What the processes say they are. The wire and the API answer with the vLLM version whose contract
// they keep, since routers and clients look at it. Constants; any thread.

namespace tandem {

inline constexpr const char* kVersion = "0.1.0";
inline constexpr const char* kVllmVersion = "0.33.0";

}  // namespace tandem
