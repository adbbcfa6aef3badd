#pragma once

// How many descriptors the process may have open, and how many of them are left for its clients.
// Connections that took the last one would leave none for an engine that comes, and libzmq ends
// the process there. Thread: any. Failure: FAILED_PRECONDITION where not one connection fits.

#include <cstdint>

#include "common/status.h"

namespace tandem {

// Raises the limit to what the host allows, and returns it.
int64_t RaiseOpenFileLimit();

// What the process needs besides the connections of its clients.
int64_t NumOwnFiles(int64_t num_engines, int64_t num_shards);

// At most `wanted`, and what fits.
StatusOr<int64_t> ConnectionsThatFit(int64_t wanted, int64_t num_own_files, int64_t max_files);

}  // namespace tandem
