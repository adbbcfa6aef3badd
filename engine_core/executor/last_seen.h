#pragma once

// The last key that each token of a request sees, where tokens of an image see each other: each row
// of a run of the image sees the whole run, all other tokens nothing after themselves.
// Pure. Source: Gemma Team 2025.

#include <cstdint>
#include <span>

#include "engine_core/scheduler/request_images.h"

namespace tandem {

// Fills in the tokens from the place `begin` on. images: null: none.
void FillLastSeen(const RequestImages* images, int32_t begin, std::span<int32_t> last_seen);

}  // namespace tandem
