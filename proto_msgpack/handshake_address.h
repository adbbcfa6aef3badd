#pragma once

// The handshake address that frontend and engine core take from equal flags: one rule for both
// processes. Reads the environment; thread: main, before others start, unless a function says more.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem::wire {

// `given` (--handshake-address), else tcp to the data-parallel address and port when there is an
// address, else ipc in the runtime folder's tandem, in /tmp tandem-<uid>.
// INVALID_ARGUMENT unless the result is ipc:///folder/name or tcp://host:port, where the host is
// one: engines connect to the address.
StatusOr<std::string> ResolveHandshakeAddress(const std::string& given,
                                              const std::string& data_parallel_address,
                                              int64_t data_parallel_rpc_port);

// "tcp://host:port"; an IPv6 address may have its brackets or not.
std::string TcpAddress(std::string_view host, int64_t port);

// Whether other hosts may reach what is bound at the address, or it is another host's.
bool IsOpenToNetwork(std::string_view address);

// Whether somebody listens at an ipc address: a connection is tried and closed. Thread: any. True
// for an address that no socket can have, and for tcp: a connection to it has the reason.
bool HasListener(const std::string& address);

}  // namespace tandem::wire
