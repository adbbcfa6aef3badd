#pragma once

// The handshake address that frontend and engine core take from equal flags: one rule for both
// processes. Reads the environment; thread: main, before others start.

#include <cstdint>
#include <string>

#include "common/status.h"

namespace tandem::wire {

// `given` (--handshake-address), else tcp to the data-parallel address and port when there is an
// address, else ipc in XDG_RUNTIME_DIR/tandem or /tmp/tandem-<uid>.
// INVALID_ARGUMENT unless the result is ipc:///folder/name or tcp://host:port.
StatusOr<std::string> ResolveHandshakeAddress(const std::string& given,
                                              const std::string& data_parallel_address,
                                              int64_t data_parallel_rpc_port);

}  // namespace tandem::wire
